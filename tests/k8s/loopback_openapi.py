"""As much of OpenAPI as kubectl has to see before it leaves validation to the server.

It looks for the parameter `fieldValidation` of a kind's patch operation: in version 3 for most
kinds, in version 2 (as protobuf, googleapis/gnostic's OpenAPIv2.proto) for a List.
"""

from loopback_store import KINDS, Object

VERSION = "1.32"


def resources(group_version: str) -> list[str]:
    """The names of the resources of an API group."""
    return [name for name, (version, _) in KINDS.items() if version == group_version]


def openapi_v3(path: str) -> Object:
    """As much of OpenAPI as kubectl needs to see that this server validates by itself."""
    paths = {
        version: "api/v1" if version == "v1" else f"apis/{version}"
        for version, _ in KINDS.values()
    }  # fmt: skip
    if path == "/openapi/v3":
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in paths.values()}}
    version = next(v for v, p in paths.items() if path.endswith(p))
    group = version.rpartition("/")[0]
    return {
        "openapi": "3.0.0",
        "info": {"title": "loopback", "version": VERSION},
        "paths": {
            f"/{paths[version]}/namespaces/{{namespace}}/{name}/{{name}}": {
                "patch": {
                    "parameters": [{"name": "fieldValidation", "in": "query"}],
                    "responses": {},
                    "x-kubernetes-group-version-kind": {
                        "group": group, "version": "v1", "kind": KINDS[name][1],
                    },
                }
            }
            for name in resources(version)
        },
    }  # fmt: skip


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field of a protobuf message."""
    content = content.encode() if isinstance(content, str) else content
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def openapi_v2() -> bytes:
    """Version 2, about namespaces alone: for kubectl they stand for a List."""
    kind = '- group: ""\n  kind: Namespace\n  version: v1\n'
    extension = field(1, "x-kubernetes-group-version-kind") + field(2, field(2, kind))
    query = field(2, "query") + field(4, "fieldValidation")
    parameter = field(1, field(2, field(3, query)))
    operation = field(8, parameter) + field(9, b"") + field(13, extension)
    path = field(1, "/api/v1/namespaces/{name}") + field(2, field(8, operation))
    info = field(1, "loopback") + field(2, VERSION)
    return field(1, "2.0") + field(2, info) + field(8, field(2, path))
