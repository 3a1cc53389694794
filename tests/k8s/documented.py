"""The commands that the pages and the manifest name, as a user types them."""

import re
import shlex

from tests.docs.fences import commands


def of_the_manifest(root, verb):
    """Return the words after `kubectl` of a command in the comment of pretrain.yaml; `verb` is its name there."""
    text = (root / "k8s" / "pretrain.yaml").read_text()
    (found,) = re.findall(rf"(?m)^#   {verb} +kubectl -n bert (.*?)(?:  |$)", text)
    return shlex.split(found)


def of_the_page(root, start="kubectl "):
    """Return the commands of docs/kubernetes.md that begin so."""
    return [line for line in commands(root / "docs" / "kubernetes.md") if line.startswith(start)]


def words(line):
    """Return the words after `kubectl` of a command."""
    return shlex.split(line, comments=True)[1:]
