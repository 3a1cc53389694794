"""Crash each stage at its system calls: `python -m tests.support.crash_points [--cases N] [--jobs N] [STAGE…]`.

A stage runs once under strace, which lists the calls that change its folder. Then, for a call at a
time, strace kills the process there or lets the call fail, and the plain command runs again. Its
folder must be that of the undisturbed run, to the byte but for times, without further files; an
error of the system must be one line, with an exit code that says what to do. When the power goes,
names stay, and files end where they did when they were last flushed to the disk; that is tried after
the end of a stage too. `--cases` draws as many of each stage; all calls that
give a file its name or take it are among the first.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from pipeline.common import counter_rng
from pipeline.errors import Exit
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import MANIFEST
from tests.support import forked

FLUSHES = ("fsync", "fdatasync")
NAMING = ("rename", "renameat", "renameat2", "link", "linkat", "symlink", "unlink", "unlinkat", "rmdir")
CALLS = (*NAMING, "openat", "write", "pwrite64", "mkdir", "ftruncate", *FLUSHES, "fchmod", "fallocate")
LINE = re.compile(r"^\d+ +(\w+)\((.*)$")
COUNT = re.compile(r", (\d+)(?:\) += | <unfinished)")
PATHS = re.compile(r'<(/[^>]*)>|"([^"]*)"')
ANYWHERE = "renameat"  # only safetensors calls it, with names that are other ones each time
RANDOM = re.compile(r"/\.tmp\w{6}$|#\d+$|[0-9a-f]{16}")
HOW = ("kill", "power", "ENOSPC", "EIO", "EINTR")
LIMIT = 120.0  # seconds of a command
TIMES = re.compile(
    rb'"(seconds|finished|times|spent|[a-z_]*per_second|mfu|data_wait_share|began|time)": ?'
    rb'("[^"]*"|[\d.e+-]+|\{[^}]*\})|"kept": (true|false)'
)
TRAIN = (
    "model=tiny model.hidden=16 model.feed_forward=32 model.heads=2 model.positions=32 batch_size=8 micro_batch=8 "
    "steps=4 save_every=2 keep=1 log_every=1 evaluate_every=100 threads=1 tracking=none "
    "schedule=wsd schedule.warmup_steps=1 schedule.decay_share=0.5"
)
COMMANDS = {  # of each stage, after those before it; TEXT, TASK and W are paths
    "download": "pipeline.download +corpus=text corpus.files=[{url:FILE}] timeout=5 tries=1 workdir=W",
    "vocab": "pipeline.vocab +corpus=lines corpus.path=TEXT size=150 workdir=W",
    "prepare": "pipeline.prepare +corpus=lines corpus.path=TEXT sequence_length=32 validation_share=0.2 workdir=W",
    "tasks": "pipeline.tasks +corpus=lines corpus.path=TEXT validation_share=0.5 workdir=W",
    "train": f"model.train workdir=W {TRAIN}",
    "convert": "pipeline.convert workdir=W",
    "evaluate": "pipeline.evaluate +task=own data=TASK task.name=own pretrained=W/convert epochs=1 batch_sizes=[8] "
    "learning_rates=[1e-3] seeds=[0] sequence_length=32 out=W/evaluate-own threads=1 workdir=W",
    "report": "pipeline.report workdir=W tracking=none",
}


@dataclass(frozen=True)
class Point:
    """A system call of a stage: its number among those of this kind at this path, or at any (empty)."""

    call: str
    path: str
    number: int
    unflushed: tuple[tuple[str, int], ...]  # files not whole on the disk before it, with how much is


@dataclass(frozen=True)
class Case:
    """What happens to a stage at a point, or what was wrong after it."""

    stage: str
    how: str
    point: Point

    def __str__(self):
        return f"{self.stage}: {self.how} at {self.point.call} {self.point.number} of {self.point.path}"


class Silent(SimpleHTTPRequestHandler):
    """Serves files, without a line for each request."""

    def log_message(self, format, *values):
        """Say nothing."""


class World:
    """A folder in which all stages before one are done."""

    def __init__(self, top, stage):
        self.top, self.stage, self.work = top, stage, top / "work"
        self.before, self.log = top / "before", top / "strace"
        text(top)
        self.file = self.serve()
        for name, words in COMMANDS.items():
            if name == stage:
                break
            code, said = self.run(words)
            assert code == 0, said
        self.work.mkdir(exist_ok=True)
        shutil.copytree(self.work, self.before)
        code, said = self.run(COMMANDS[stage], f"trace={','.join(CALLS)}", "-y")
        assert code == 0, said
        self.points = [*self._points()]
        self.wanted = self.content()

    def serve(self):
        """Serve the text to this process's children; return its address."""
        handler = partial(Silent, directory=str(self.top))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/text.txt"

    def run(self, words, expression=None, *options):
        """Run a command, under strace with an expression; return its exit code and what it said.

        The code is that of the signal, negative, or 124 for a command that did not end; then what is
        left of its process group is killed, which is said.
        """
        for name, value in {"TEXT": "text.txt", "TASK": "task", "W": "work"}.items():
            words = re.sub(rf"\b{name}\b", str(self.top / value), words)
        words = words.replace("FILE", self.file)
        child = os.fork()
        if not child:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
            (self.top / "said").mkdir(exist_ok=True)
            for name in ("out", "err"):
                (self.top / "said" / name).unlink(missing_ok=True)
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.top), "OMP_NUM_THREADS": "1"}
            order = {"words": ["-m", *words.split()], "cwd": str(forked.ROOT), "folder": str(self.top / "said")}
            names, other = itertools.count(), secrets.token_hex
            # Those of temporary files are the same each time.
            secrets.token_hex = lambda count=32: f"{next(names):08x}" if count == 4 else other(count)
            forked.become(order | {"env": environment})
        os.waitpid(child, os.WUNTRACED)
        tracer = None
        if expression is not None:
            command = ["strace", "-f", "-qq", "-o", str(self.log), "-e", expression, *options, "-p", str(child)]
            tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while "TracerPid:\t0\n" in Path(f"/proc/{child}/status").read_text():
                assert tracer.poll() is None, "strace may not attach to processes here"
                time.sleep(0.005)
        os.kill(child, signal.SIGCONT)
        until, code = time.monotonic() + LIMIT, 124
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.01)
        left = code == 124 or not alone(child, 10.0)
        if left:
            os.killpg(child, signal.SIGKILL)
            if code == 124:
                os.waitpid(child, 0)
        if tracer is not None:
            tracer.wait()
        files = [self.top / "said" / name for name in ("out", "err")]
        said = "".join(file.read_text() for file in files if file.exists())
        return code, f"{said}\nprocesses were left" if left else said

    def _points(self):
        counts = Counter()
        sizes = {}
        unflushed = {}
        for line in self.log.read_text(errors="replace").splitlines():
            found = LINE.match(line)
            if found is None:
                continue
            call, arguments = found.groups()
            if call == "openat" and not re.search(r"O_(WRONLY|RDWR|CREAT)", arguments):
                continue
            paths = [one or other for one, other in PATHS.findall(arguments)]
            within = [path for path in paths if path.startswith(f"{self.work}/")]
            if not within:
                continue
            path, *others = within
            if not RANDOM.search(path) or call == ANYWHERE:
                place = "" if call == ANYWHERE else path
                counts[call, place] += 1
                yield Point(call, place, counts[call, place], tuple(unflushed.items()))
            earlier = self.before / Path(path).relative_to(self.work)
            size = sizes.get(path, earlier.stat().st_size if earlier.is_file() else 0)
            if call in (*FLUSHES, "unlink", "unlinkat"):
                unflushed.pop(path, None)
                sizes[path] = size if call in FLUSHES else 0
            elif call == "write" or (call == "openat" and "O_TRUNC" not in arguments):
                unflushed.setdefault(path, size)
                sizes[path] = size + (int(COUNT.findall(arguments)[-1]) if call == "write" else 0)
            elif call not in NAMING and call not in ("mkdir", "fchmod"):
                unflushed[path] = sizes[path] = 0
            elif call.startswith("rename") and others:
                for known in (sizes, unflushed):
                    moved = {
                        re.sub(rf"^{re.escape(path)}(?=/|$)", others[0], name): size
                        for name, size in known.items()
                        if name != others[0]
                    }
                    known.clear()
                    known |= moved
        yield Point("end", "", 0, tuple(unflushed.items()))

    def content(self):
        """Return the files below the run's folder but for times, with hidden ones but for locks."""
        found = {}
        for path in sorted(self.work.rglob("*")):
            name = path.relative_to(self.work).as_posix()
            if path.is_file() and not name.endswith(".lock"):
                found[name] = lasting(name, path.read_bytes())
        return found

    def judge(self, case):
        """Do a case; return what was wrong, or None; "" if the call was not made."""
        shutil.rmtree(self.work)
        subprocess.run(["cp", "-a", str(self.before), str(self.work)], check=True)
        killed = case.how in ("kill", "power")
        do = "signal=KILL" if killed else f"error={case.how}"
        inject = f"inject={case.point.call}:{do}:when={case.point.number}"
        self.log.unlink(missing_ok=True)
        if case.point.call == "end":
            code, said = self.run(COMMANDS[self.stage])
        else:
            code, said = self.run(COMMANDS[self.stage], inject, *(["-P", case.point.path] if case.point.path else []))
            if "(INJECTED)" not in self.log.read_text(errors="replace") and code != -signal.SIGKILL:
                return ""
        if "processes were left" in said:
            return said[-300:]
        if case.how == "power":
            for path, size in case.point.unflushed:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.truncate(path, min(size, os.path.getsize(path)))
        if not killed and (code not in (0, Exit.USER, Exit.RESTART) or "Traceback" in said):
            return f"exit code {code}: {said[-700:]}"
        again, said = self.run(COMMANDS[self.stage])
        if again != 0:
            return f"again, exit code {again}: {said[-700:]}"
        found = self.content()
        differ = [name for name in found.keys() | self.wanted.keys() if found.get(name) != self.wanted.get(name)]
        return f"after exit code {code} and again, other files: {', '.join(sorted(differ)[:6])}" if differ else None


def lasting(name, data):
    """Return what of a file no time changes."""
    if name.endswith(("report.html", "rates.json", checkpoint_folder.SUMS)):
        return b""
    if name.endswith("metrics.jsonl"):
        rows = [json.loads(line) for line in data.splitlines()]
        return json.dumps([(row["kind"], row["step"], row.get("loss")) for row in rows]).encode()
    if name.endswith(MANIFEST):
        data = re.sub(rb'"(sha256|bytes)": ?("[^"]*"|\d+)', b"", data)  # the other files are compared
    return TIMES.sub(b"", data)


def alone(child, seconds):
    """Wait until nothing of a process group is left."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.killpg(child, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def text(top):
    """Write a corpus and a task, the same each time."""
    words = [a + b for a in ("ba", "ko", "ri", "tu", "me", "sa") for b in ("n", "l", "r", "nd", "sk", "")]
    key = counter_rng.key(0, "crash points")

    def sentence(number):
        drawn = counter_rng.uniform(key, range(8 * number, 8 * number + 8))
        return " ".join(words[int(one * len(words))] for one in drawn)

    documents = ("\n".join(f"{sentence(9 * n + i)}." for i in range(9)) for n in range(60))
    (top / "text.txt").write_text("\n\n".join(documents) + "\n")
    (top / "task").mkdir()
    for name, first in (("train", 1000), ("dev", 1040)):
        rows = "".join(f"{sentence(first + n)}\t{n % 2}\n" for n in range(40))
        (top / "task" / f"{name}.tsv").write_text(f"text\tlabel\n{rows}")


def may_happen(how, point):
    """Return whether a system may do this at a call."""
    if point.call == "end" or how == "power":
        return how == "power" and bool(point.unflushed)
    return how in ("kill", "EIO") or point.call not in (*NAMING, *(("mkdir", "fchmod") if how == "EINTR" else ()))


def drawn(points, stage, most):
    """Return the cases of a stage: what names files first, then a sample drawn evenly."""
    every = [Case(stage, how, point) for point in points for how in HOW if may_happen(how, point)]
    key = counter_rng.key(0, stage)
    naming = (*NAMING, "end")
    order = sorted(range(len(every)), key=lambda n: (every[n].point.call not in naming, counter_rng.uniform(key, n)))
    return [every[n] for n in order[:most]]


def crash(stage, most):
    """Do the cases of a stage; return each with what was wrong."""
    for name in forked.PRELOADED:
        import_module(name)
    top = Path(tempfile.mkdtemp(prefix="crash-"))  # the end of a forked process would remove a TemporaryDirectory
    try:
        world = World(top, stage)
        return [(case, world.judge(case)) for case in drawn(world.points, stage, most)]
    finally:
        shutil.rmtree(top)


def main():
    """Print a table of cases, and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", default=list(COMMANDS), metavar="STAGE")
    parser.add_argument("--cases", type=int, help="of each stage; all without")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    began, bad = time.monotonic(), 0
    print(f"{'stage':<10} {'cases':>6} {'made':>6} {'wrong':>6}")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for stage, done in zip(
            options.stages, pool.map(crash, options.stages, [options.cases] * len(options.stages)), strict=True
        ):
            wrong = [(case, said) for case, said in done if said]
            made = sum(said != "" for _, said in done)
            print(f"{stage:<10} {len(done):>6} {made:>6} {len(wrong):>6}", flush=True)
            print("".join(f"  {case}\n    {said}\n" for case, said in wrong), end="", flush=True)
            bad += len(wrong) + (not made)  # where no case was made, nothing was shown
    print(f"{(time.monotonic() - began) / 60:.0f} min")
    sys.exit(min(bad, 1))


if __name__ == "__main__":
    main()
