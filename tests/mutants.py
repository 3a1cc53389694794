"""Change the code at one place and see whether a test notices: `python -m tests.mutants`, `MUTANTS=400 SEED=0`.

The changes are drawn evenly over the rooms of the product, and there evenly over the lines; an edit elsewhere
draws the same ones. Each runs, in a copy of the tree and a process of its own, the quick
tests near its module: its mirror in `tests` and those beside it that import it. When all have run, the tests
further away that run its line try what is left. What is known is kept in `build/mutants`; a survivor
is tried again once the near tests have changed, a killed one once the test that noticed it has.
"""

import ast
import difflib
import gc
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import product, zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest
from coverage import CoverageData
from hypothesis import Phase, settings

from tests.ratchet import ROOT, imported

KEPT = ROOT / "build" / "mutants"
COPY = KEPT / "tree"
ROOMS = [f"{top}/{room.name}" for top in ("pipeline", "model") for room in sorted((ROOT / top).glob("[a-z]*/"))]
ROOMS += ["pipeline", "model"]  # the commands
LIBRARIES = "apache_beam deepspeed pyarrow.dataset scipy.stats sklearn.metrics tokenizers"
MARKS = "not slow and not k8s and not image and not ssh and not slurm and not engines and not netns"
USUAL = ("-x", "-n0", "-rfE", "-m", MARKS, "--hypothesis-seed=0", "-p", "no:cacheprovider", f"--rootdir={COPY}")
COVERAGE = ("--cov=pipeline", "--cov=model", "--cov-config=/dev/null", "--cov-context=test", "--cov-report=")
SECONDS = 300  # of processor time; a test that waits for ever is ended by its own limit
PAIRS = "Div Mult, Mod FloorDiv, Pow Mult, Mult FloorDiv, Add Sub, BitAnd BitOr, LShift RShift, And Or, Lt LtE, "
PAIRS += "Gt GtE, Eq NotEq, In NotIn, Is IsNot, min max, any all, minimum maximum"
OTHER = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
SAID = ("print", "terminal.", "warnings.", "logging.", "sys.stdout", "sys.stderr")


class Mutant(NamedTuple):
    """A file in which the bytes from `start` to `end`, of these lines, are others."""

    path: str
    first: int
    last: int
    start: int
    end: int
    new: str

    def text(self):
        """Return the file with the change."""
        old = source(self.path)
        return (old[: self.start] + self.new.encode() + old[self.end :]).decode()

    def diff(self):
        """Return the change as people read it."""
        pair = [text.splitlines(keepends=True) for text in (source(self.path).decode(), self.text())]
        return "".join(difflib.unified_diff(*pair, self.path, self.path, n=2))


@cache
def source(path):
    """Return a file as it was when this began; people go on to edit."""
    return (ROOT / path).read_bytes()


def digest(*words):
    """Return a name of these words."""
    return hashlib.sha256(repr(words).encode()).hexdigest()


def parts(node):
    """Yield what is in a node and decides something: neither types nor what is said to people."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            said = name in ("annotation", "returns", "decorator_list") or not isinstance(child, ast.AST)
            match child:
                case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.keyword(arg="strict"):
                    said = True
                case ast.Call(func=called):
                    said |= ast.unparse(called).startswith(SAID) or ast.unparse(called).endswith(("Error", "field"))
                case ast.If(test=test):
                    said |= ast.unparse(test) in ("TYPE_CHECKING", "__name__ == '__main__'")
            if not said:
                yield child


def replacements(node):
    """Yield what a node could be by mistake."""
    sign = type(getattr(node, "op", None)).__name__
    other = getattr(ast, OTHER.get(sign, "Add"))()
    match node:
        case ast.Compare(left=left, ops=[compared], comparators=rest):
            yield f"({ast.unparse(ast.Compare(left, [getattr(ast, OTHER[type(compared).__name__])()], rest))})"
        case ast.BinOp(left=left, right=right) if sign in OTHER:
            if not any(isinstance(getattr(side, "value", 0), str | bytes) for side in (left, right)):
                yield f"({ast.unparse(ast.BinOp(left, other, right))})"
        case ast.BoolOp(values=values):
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() | float() as value):
            yield from (repr(value + 1), f"({value - 1!r})")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in OTHER:
            called = ast.unparse(node.func)
            yield called.removesuffix(name) + OTHER[name] + ast.unparse(node).removeprefix(called)
        case ast.Slice(lower=lower, upper=upper) if lower or upper:
            low, high, step = ("" if bound is None else ast.unparse(bound) for bound in (lower, upper, node.step))
            yield f"{low and f'({low}) + '}1:{high}:{step}".removesuffix(":")
            yield f"{low}:{high and f'({high}) '}{'+' if high else '-'}1:{step}".removesuffix(":")
        case ast.Return(value=value) if value and ast.unparse(value) != "None":
            yield "return None"
        case ast.AugAssign(target=target, value=value) if sign in OTHER:
            yield from ("pass", ast.unparse(ast.AugAssign(target, other, value)))
        case ast.Raise() | ast.Break() | ast.Continue() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Delete() | ast.Expr(value=ast.Call()) if list(parts(node)):
            yield "pass"


def mutants(path, text):
    """Yield all changes of a file."""
    starts, waiting = [0], [ast.parse(text)]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    while waiting:
        node = waiting.pop()
        waiting += () if isinstance(node, ast.Raise) else parts(node)
        for new in replacements(node):
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            yield Mutant(path, node.lineno, node.end_lineno, start, end, new)


def drawn(room, count, seed):
    """Return changes of a room, at most one of a line."""
    best = {}
    below = (ROOT / room).rglob("*.py") if "/" in room else (ROOT / room).glob("*.py")
    for name in sorted(path.relative_to(ROOT).as_posix() for path in below):
        for mutant in mutants(name, source(name)):
            around = source(name)[: mutant.end].splitlines()[mutant.first - mutant.last - 1 :]
            ranked = (digest(seed, name, around, mutant.new), mutant)
            best[name, mutant.first] = min(best.get((name, mutant.first), ranked), ranked)
    return [mutant for _, mutant in sorted(best.values())[:count]]


@cache
def imports():
    """Return the files that each file imports, also within functions."""
    files = [path.relative_to(ROOT) for top in ("pipeline", "model", "tests") for path in (ROOT / top).rglob("*.py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): str(path) for path in files}
    names = {str(path): imported(ast.parse(source(str(path)))) for path in files}
    return {path: {modules[name] for name in found if name in modules} for path, found in names.items()}


def tests_of(path):
    """Return the near tests of a module, its mirror first, and those further away, the nearest first."""
    folder, name = os.path.split(path)
    mirror = f"tests/{folder}/test_{Path(folder).name if name == '__init__.py' else name[:-3]}.py"
    found, seen, ring = [], {path}, {path}
    for _ in range(2):
        ring = {file for file, names in imports().items() if names & ring} - seen
        seen |= ring
        found += sorted((file for file in ring if "/test_" in file), key=lambda file: len(source(file)))
    beside = sorted(file for file in imports() if Path(file).match(f"tests/{folder}/test_*.py"))
    near = [mirror] * (mirror in beside) + [f for f in found if f in beside and f != mirror] or beside
    return near, [file for file in found if file not in near]


def run(*words, **variables):
    """Run pytest in a fork of this process, which knows the libraries; return what failed, "" if nothing did."""
    log, child = KEPT / "log", os.fork()
    if not child:
        os.setpgrp()
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.chdir(COPY)
        sys.path[:] = [str(COPY), *(path for path in sys.path if path not in ("", str(ROOT)))]
        sys.pycache_prefix = str(KEPT / "compiled")
        os.environ |= {"PYTHONPATH": str(COPY), "PYTHONPYCACHEPREFIX": sys.pycache_prefix, **variables}
        os.environ |= {"HYPOTHESIS_PROFILE": "quick"}
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        settings.register_profile("first", phases=[Phase.explicit, Phase.generate])  # the first failure will do
        settings.load_profile("first")  # the profiles of conftest.py build on it
        os._exit(pytest.main([*USUAL, *words]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test left
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", log.read_text(errors="replace"), re.MULTILINE)
    return "" if code in (0, 5) else failed[1] if failed else f"exit {code}"  # 5: all tests are deselected


def covering(test, mutant):
    """Return the tests of a file that run a line of a change; its import is run by all that use the module."""
    data = KEPT / "coverage" / digest(source(test), source(mutant.path))
    if not data.exists():
        run(test, *COVERAGE, COVERAGE_FILE=str(data))
    found = CoverageData(str(data))
    found.read()
    lines = found.contexts_by_lineno(str(COPY / mutant.path))
    here = {context for line in range(mutant.first, mutant.last + 1) for context in lines.get(line, ())}
    here = here if here != {""} else set().union(*lines.values())
    return sorted({context.split("|")[0] for context in here} - {""})


def judged(mutant, sound, far):
    """Return the test that notices a change, "" if none does; a test that fails without the change is left out."""
    near, others = tests_of(mutant.path)
    place, clock, skipped = COPY / mutant.path, int(time.time()), []
    for tests in [[test] for test in others] if far else [near]:
        words = covering(tests[0], mutant) if far else near
        while words:
            place.write_text(mutant.text())
            os.utime(place, (clock, clock := clock + 1))  # compiled files are known by the second
            failed = run(*words, *skipped)
            place.write_bytes(source(mutant.path))
            os.utime(place, (clock, clock := clock + 1))
            if not failed:
                break
            if failed in sound or run(failed) != failed:
                sound.add(failed)
                return failed
            skipped.append(f"--deselect={failed}")
    return ""


def judges(test, near):
    """Return a digest of the file of the test that noticed a change, or of the near tests if no test did.

    What is known of a change holds while this is the same: a test that is deleted or made weaker takes its kills along.
    """
    path = ROOT / test.split("::")[0]
    return digest(path.read_bytes()) if path.is_file() else near


def main():
    """Try what is drawn and not yet known; print a table and what survived."""
    count, seed = int(os.environ.get("MUTANTS", "400")), int(os.environ.get("SEED", "0"))
    shutil.rmtree(COPY, ignore_errors=True)
    for folder in (COPY, KEPT / "coverage"):
        folder.mkdir(parents=True, exist_ok=True)
    copied = f"git ls-files -z --cached --others --exclude-standard | xargs -0 cp -pP --parents -t {COPY}"
    subprocess.run(copied, shell=True, cwd=ROOT, check=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LIBRARIES.split():
        import_module(name)
    gc.freeze()  # forks do not copy pages to count what they never free
    (results := KEPT / "results.jsonl").touch()
    rows = {row["key"]: row for row in map(json.loads, results.read_text().splitlines())}
    table, left, sound = {room: Counter() for room in ROOMS}, [], {row["by"] for row in rows.values()}
    each = [[(room, mutant) for mutant in drawn(room, -(-count // len(ROOMS)), seed)] for room in ROOMS]
    chosen = [pair for group in zip_longest(*each) for pair in group if pair][:count]
    for far, (room, mutant) in product((False, True), chosen):
        near = digest(*map(source, tests_of(mutant.path)[0]))
        row = rows.get(key := digest(mutant, source(mutant.path)))
        holds = row is not None and row.get("judges") == judges(row["by"], near)
        row = row if holds else {"by": "", "seconds": 0, "rings": 0}
        if not row["by"] and row["rings"] == far:
            began = sum(os.times()[2:4])
            row |= {"key": key, "by": judged(mutant, sound, far), "rings": far + 1, "diff": mutant.diff()}
            row["judges"] = judges(row["by"], near)
            row["seconds"] += round(sum(os.times()[2:4]) - began)
            rows[key] = row
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['seconds']:4} s {mutant.path}:{mutant.first} {row['by'] or 'SURVIVED'}", flush=True)
        if far:
            table[room].update(tried=1, killed=bool(row["by"]), seconds=row["seconds"])
            left += [] if row["by"] else [row["diff"]]
    print(*left, "| room | tried | killed | survived | CPU seconds each |\n|---|---:|---:|---:|---:|", sep="\n")
    for room, counts in [*table.items(), ("all", sum(table.values(), Counter()))]:
        tried, killed = counts["tried"], counts["killed"]
        print(f"| {room} | {tried} | {killed} | {tried - killed} | {counts['seconds'] / max(tried, 1):.0f} |")


if __name__ == "__main__":
    main()
