"""Write the manifests of k8s/ from their templates: `python k8s/generate.py`.

They repeat the same pod twenty times. kustomize cannot patch YAML anchors and merge keys,
so the committed files have none; the templates contain the repeated parts once.
"""

from pathlib import Path

import jinja2

HERE = Path(__file__).resolve().parent
FILES = {
    "pretrain.yaml.j2": HERE / "base" / "pretrain.yaml",
    "shell.yaml.j2": HERE / "components" / "shell" / "shell.yaml",
    "jobset.yaml.j2": HERE / "overlays" / "jobset" / "jobset.yaml",
    "trainjob.yaml.j2": HERE / "overlays" / "trainjob" / "trainjob.yaml",
}


def at(text: str, column: int) -> str:
    """Return a block with the lines after the first indented by `column`."""
    return text.rstrip().replace("\n", "\n" + " " * column)


def render(template: str) -> str:
    """Return the manifest rendered from a template."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["at"] = at
    return environment.get_template(template).render()


def main() -> None:
    """Write all files."""
    for template, path in FILES.items():
        path.write_text(render(template))


if __name__ == "__main__":
    main()
