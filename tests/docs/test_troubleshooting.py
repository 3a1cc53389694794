"""The messages on the page about troubles are those that the code prints."""

import ast
import re


def constants(root):
    """Return all texts in the code; an f-string's parts are texts of their own."""
    return [
        node.value
        for folder in ("pipeline", "model")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def messages(root):
    text = (root / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.M)


def test_every_message_is_one_that_the_code_prints(root):
    listed, known = messages(root), constants(root)
    assert len(listed) >= 25
    for message in listed:
        for part in filter(None, (part.strip() for part in message.split("…"))):
            assert any(part in text for text in known), f"{message}: {part!r} is not in the code"
