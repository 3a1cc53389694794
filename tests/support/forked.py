"""Real commands in processes forked from one that has imported what all of them need.

`run([sys.executable, "-m", MODULE, ...])` is `subprocess.run` of the same words without the seconds
that each new interpreter spends on Beam, PyTorch and transformers. A test about imports, about
variables that libraries read while they are imported, or about a terminal starts an interpreter.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND  # ranks share their files
PRELOADED = (
    "pipeline.beam.steps",
    "pipeline.cli.entry_point",
    "pipeline.cli.help_text",
    "pipeline.orchestration.local",
    "pyarrow.dataset",
    "deepspeed",
    "transformers",
    "model.training.trainer",
    "model.finetuning.loop",
    "model.huggingface.bert_format",
    "deepspeed.runtime.zero.muon.original_muon",  # seconds, at the first optimizer
    "deepspeed.module_inject.auto_ep_layer",
    "pipeline.cli.composing",
)


def run(command, cwd=None, env=None, capture_output=True, text=True, check=False, ranks=0):
    """Run `[sys.executable, "-m", MODULE, ...]` or `[sys.executable, SCRIPT, ...]`; text output.

    `ranks` processes run it at the same time as the ranks of one training, as a launcher would
    start them; the exit code is then the highest one.
    """
    assert command[0] == sys.executable
    assert capture_output, "what a child prints is always kept"
    assert text, "as text"
    from pipeline.common.ports import free_port  # the server has its path later

    with tempfile.TemporaryDirectory() as folder:
        order = {
            "words": [str(word) for word in command[1:]],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "folder": folder,
            "ranks": ranks,
            "port": free_port() if ranks else 0,
        }
        server = _server()
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        try:
            code = int(server.stdout.readline())
        except BaseException:  # a test's time is over: the next one has a server that answers it
            os.killpg(server.pid, signal.SIGKILL)
            _server.cache_clear()
            raise
        out, err = (Path(folder, name).read_text() for name in ("out", "err"))
    done = subprocess.CompletedProcess(list(command), code, out, err)
    if check:
        done.check_returncode()
    return done


def module(*words, **more):
    """Run the words that follow `python -m` in a forked process, at the top of the repository."""
    return run([sys.executable, "-m", *map(str, words)], **{"cwd": ROOT} | more)


def fresh(*words, **more):
    """Run the words that follow `python` in an interpreter of its own, likewise."""
    usual = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    return subprocess.run([sys.executable, *map(str, words)], **usual | more)


@functools.cache
def _server():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "process_group": 0}
    env = os.environ | {"DEEPSPEED_LOG_LEVEL": "warning"}  # read when it is imported
    server = subprocess.Popen([sys.executable, __file__], cwd=ROOT, env=env, **pipes)
    atexit.register(server.kill)
    return server


def serve():
    """Fork a child for each line of orders; write its exit code as a line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # imports print
    sys.path.insert(0, str(ROOT))
    import deepspeed
    from hydra.core.plugins import Plugins

    for name in PRELOADED:
        import_module(name)
    Plugins.instance()  # Hydra looks for them once
    assert deepspeed.ops.__compatible_ops__  # asks a compiler once
    gc.collect()
    gc.freeze()  # children do not copy pages to count what they never free
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    # Only threads that survive a fork: Arrow's allocator starts its own again.
    assert threads <= {Path("/proc/self/comm").read_text().strip(), "jemalloc_bg_thd"}, threads
    for line in sys.stdin:
        order = json.loads(line)
        children = set()
        for more in rank_environments(order["ranks"], order["port"]):
            child = os.fork()
            if not child:
                answers.close()
                become(order | {"env": order["env"] | more})
            children.add(child)
        print(exit_code(children), file=answers, flush=True)


def exit_code(children):
    """Return the highest of their codes; when one fails, the others have a minute, as launchers give."""
    highest = 0
    signal.signal(signal.SIGALRM, lambda *_: [os.kill(child, signal.SIGKILL) for child in children])
    while children:
        child, status = os.wait()
        children.discard(child)
        code = os.waitstatus_to_exitcode(status)
        if code and not highest:
            signal.alarm(60)
        highest = max(highest, code, key=abs)
    signal.alarm(0)
    return highest


def rank_environments(ranks, port):
    """Return the variables that a launcher sets for each rank; without ranks, for one command."""
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [world | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)] or [{}]


def become(order):
    """Be the command in this process, to its end."""
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(order["folder"], name), WRITE), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    code = 1
    try:
        execute(order["words"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def execute(words):
    """Run the words that follow `python`."""
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = words[1:]
        sys.modules.pop(words[1], None)  # it runs as `__main__`
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(words[0]).resolve().parent)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    serve()
