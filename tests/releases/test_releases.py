"""What a release, or earlier code, has written is read for ever: to the same values, and nothing is made again."""

import contextlib
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline.errors import Exit
from pipeline.orchestration import graph, run_plan
from pipeline.records import checkpoint_folder, run_file
from pipeline.records.manifest import MANIFEST, Manifest
from tests.releases import archive
from tests.support import forked
from tests.support.runs import composed

EARLIER = (pytest.mark.slow, pytest.mark.shared_data)  # of no release, too large for the repository
VERSIONS = sorted(path.stem for path in archive.HERE.glob("*.json"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if (archive.HERE / f"{name}.tar.xz").exists() else EARLIER) for name in VERSIONS
    ],
)
def release(request, tmp_path_factory):
    """The commands and values of an archive, unpacked into the working folder."""
    if not archive.path_of(request.param).exists():
        pytest.skip(f"not here: {archive.path_of(request.param)}")
    top = tmp_path_factory.mktemp(request.param)
    found = archive.unpack(request.param, top)
    with contextlib.chdir(top):
        yield found


def same(now, was):
    """Whether two values are one but for rounding, on another processor or with another library."""
    if isinstance(was, float):
        return math.isclose(now, was, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(was, list):
        return len(now) == len(was) and all(map(same, now, was))
    return bool(now == was)


def test_each_file_is_read_to_the_values_that_were_noted(release):
    for name, was in release["values"].items():
        now = archive.values(release["commands"][name])
        differ = {key: (now.get(key), value) for key, value in was.items() if not same(now.get(key), value)}
        assert not differ, name


def test_a_training_resumes_and_ends_as_it_did(release, tmp_path):
    top = shutil.copytree(Path.cwd(), tmp_path / "top")  # with the times
    with contextlib.chdir(top):
        for command in release["commands"].values():
            if "pipeline.run " in command:
                resume(top, command)


@pytest.mark.slow
def test_a_training_that_was_stopped_resumes_after_its_last_step(release):
    commands = [command for command in release["commands"].values() if "pipeline.train " in command]
    if not commands:
        pytest.skip("no training of it was stopped")
    (command,) = commands
    (out,) = (Path(word.removeprefix("out=")) for word in shlex.split(command) if word.startswith("out="))
    saved = sorted(out.glob("checkpoints/*/step-*"))
    process = subprocess.Popen(
        [sys.executable, *shlex.split(command)[1:]],
        env={**os.environ, "PYTHONPATH": str(forked.ROOT)},
        text=True,
        stdout=subprocess.PIPE,
    )
    with process:
        said = next(line for line in process.stdout if "resum" in line)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == Exit.RESTART
    assert str(int(saved[-1].name.removeprefix("step-"))) in said
    now = sorted(out.glob("checkpoints/*/step-*"))
    assert {path.parent for path in now} == {path.parent for path in saved}
    assert now[-1].name > saved[-1].name


def resume(top, command):
    """Take the end of a training away, as if it was killed before, and train from the record of its run."""
    config = composed(*shlex.split(command)[3:])
    nodes = graph.plan_graph(config)
    record = Path(config.workdir, run_file.NAME)
    if not record.exists():
        run_plan.record_run(config, nodes).write()
    out = Path(next(node.config.out for node in nodes if node.kind == "train"))
    made = Manifest.read(out)
    last = out / made.figures["checkpoint"]
    was = {name: load_file(last / name) for name in (checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS)}
    shutil.rmtree(last)
    (out / MANIFEST).unlink()
    before = max(checkpoint_folder.steps(last.parent))
    done = forked.module("model.train", run_file.OPTION, f"{record}#train", cwd=top)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "resum" in line)
    assert str(before) in line
    for name, tensors in was.items():
        now = load_file(last / name)
        assert now.keys() == tensors.keys()
        for key, tensor in tensors.items():
            np.testing.assert_allclose(now[key], tensor, rtol=1e-3, atol=1e-5, err_msg=f"{name}: {key}")
    assert [node.name for node in graph.plan_graph(config) if node.reason] == []
