"""Hold the figures of the code, which may only fall: `python tests/ratchet.py [--lower]`.

Each line of `ratchet.txt` is a figure and its limit; `--lower` writes the present figures there
where they are smaller. Raising one is an edit, with its reason behind a `#`, in place of the last.

code ROOM     lines with a token that is neither a comment nor a docstring
options       fields of the dataclasses in the config folders
variables     own variables of the environment
lonely        modules that one other module imports
stores        questions whether something is in a store, outside of the stores' own modules
replaced      attributes of libraries that are assigned
vague         values named found, which does not say what they are
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".txt")
LINE = re.compile(r"^(\S.*\S)\s+(\d+)(\s*#.*)?$")
SILENT = {tokenize.COMMENT, tokenize.NL}
ENDS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
# Variables of others: of launchers, clouds, libraries and the system.
FOREIGN = re.compile(
    r"(AWS|AZURE|CUDA|GOOGLE|HF|JOB|KUBE|KUBERNETES|LOCAL|MASTER|NCCL|OMP|PYTHON|RANK|SLURM|TORCH"
    r"|WANDB|WORLD|XDG|DS|GRPC|TOKENIZERS|TRITON|STORAGE|TRAINJOB|TRAINER)(_|$)|^(HOME|USER|PATH|TERM)$"
)
OWN = ("pipeline", "model", "os", "sys")  # what they assign is of their process
QUESTION = re.compile(r"\b(in_store|is_address|localised|local_place)\(|\.stored\b")
ASKED_IN = ("pipeline/stages/", "pipeline/storage/")


def code_lines(text):
    """Return the lines with a token that is neither a comment nor a docstring."""
    lines = set()
    first = True  # of a statement: a string there is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in SILENT or token.type == tokenize.ENDMARKER:
            continue
        if token.type in ENDS:
            first = True
        elif token.type == tokenize.STRING and first:
            first = False
        else:
            first = False
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def imported(tree):
    """Return the names that a module imports, also within functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def of_module(path, tree, text):
    """Return the figures of one file, but those that depend on others."""
    parts = path.split("/")
    room = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
    found = Counter({f"code {room}": code_lines(text)})
    foreign = {name.rpartition(".")[2] for name in imported(tree) if name.partition(".")[0] not in OWN}
    if not path.startswith(ASKED_IN):
        found["stores"] = len(QUESTION.findall(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and "/config/" in path and node.decorator_list:
            found["options"] += sum(isinstance(part, ast.AnnAssign) for part in node.body)
        found["vague"] += isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "found"
        if isinstance(node, ast.Assign):
            targets = [ast.unparse(target).partition(".") for target in node.targets]
            found["replaced"] += sum(bool(dot) and root in foreign for root, dot, _ in targets)
    return found


def variables(tree):
    """Return the own variables of the environment that a module names."""
    found = set()
    for node in ast.walk(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and re.search(r"environ\.\w+$|getenv$", called):
            found |= {a.value for a in node.args[:1] if isinstance(a, ast.Constant)}
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            found |= {node.slice.value} if isinstance(node.slice, ast.Constant) else set()
    return {str(name) for name in found if not FOREIGN.search(str(name))}


def figures():
    """Return all figures of the tree."""
    paths = [path for top in ("pipeline", "model") for path in sorted((ROOT / top).rglob("*.py"))]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    modules = {path: name.removesuffix(".__init__") for path, name in names.items()}
    found, callers, own = Counter[str](), Counter[str](), set[str]()
    for path, module in modules.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found += of_module(path.relative_to(ROOT).as_posix(), tree, text)
        callers.update((imported(tree) & set(modules.values())) - {module})
        own |= variables(tree)
    found["lonely"] = sum(callers[module] == 1 for module in modules.values())
    found["variables"] = len(own)
    return dict(found)


def main():
    """Compare the figures with their limits; the exit code says whether they hold."""
    now, lines, worse = figures(), [], []
    known = LIMITS.read_text().splitlines() if LIMITS.exists() else []
    limits = {match[1]: match for line in known if (match := LINE.match(line))}
    for name in sorted(now.keys() | limits.keys()):
        match, figure = limits.get(name), now.get(name, 0)
        limit, reason = (int(match[2]), match[3] or "") if match else (figure, "")
        if figure > limit or match is None:
            worse.append(f"{name}: {figure}, at most {limit if match else 'a limit in the file'}")
        if figure:
            lines.append(f"{name:28} {min(figure, limit):6}{reason}")
    if "--lower" in sys.argv:
        LIMITS.write_text("\n".join(lines) + "\n")
        return 0
    for line in worse:
        print(f"tests/ratchet.txt: {line}; take something away, or raise it there with a reason")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
