"""The same bytes on every engine, whatever dies; what is only configured is configured right."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options

from pipeline.beam import runners
from pipeline.common.ports import free_port
from pipeline.config import RunnerConfig
from pipeline.errors import ConfigError, Exit
from pipeline.preparation.shuffle import ShuffleLayout
from pipeline.records.manifest import require_manifest
from tests.support import forked
from tests.support.preparing import vocabulary
from tests.support.refusals import refused
from tests.support.runs import configured
from tests.support.waiting import listens, wait_for

pytestmark = pytest.mark.slow

SMALL = ShuffleLayout.choose(1, 1, 1000, 1)
WORDS = ["the", "river", "runs", "past", "an", "old", "mill", "rain", "fell", "on", "roofs", "of", "town", "."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus and a vocabulary."""
    folder = tmp_path_factory.mktemp("engines")
    vocabulary(folder, WORDS)
    texts = ("\n".join(f"{' '.join(WORDS[k % 5 : 5 + (k * n) % 8])} {n}." for k in range(3, 40)) for n in range(120))
    (folder / "a.txt").write_text("\n\n".join(texts))
    return folder


@pytest.mark.parametrize("alone", [True, False])
def test_ctrl_c_ends_a_run_in_one_line_while_its_workers_start(root, folder, tmp_path, alone):
    words = command(folder, tmp_path / "out", "runner.workers=2")
    process = subprocess.Popen(
        words,
        cwd=root,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell's background jobs ignore
    )
    tasks = Path(f"/proc/{process.pid}/task")
    while not any((task / "children").read_text() for task in tasks.iterdir()):
        assert process.poll() is None
        time.sleep(0.01)
    (os.kill if alone else os.killpg)(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said.splitlines() == ["interrupted; rerun the same command"]
    assert process.returncode == Exit.INTERRUPTED
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def command(folder, out, *more):
    words = "-m pipeline.prepare +corpus=lines validation_share=0.1 split_bytes=12000 shard_bytes=40000"
    places = [f"corpus.path={folder}/a.txt", f"vocab={folder}", f"out={out}", "sequence_length=32"]
    return [sys.executable, *words.split(), *places, "runner.task_bytes=1", *more]


def made(root, words, out, **more):
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    return require_manifest(out, "prepare", "out")


@pytest.fixture(scope="module")
def reference(root, folder):
    """What the local engine makes."""
    manifest = made(root, command(folder, folder / "local"), folder / "local")
    assert len(manifest.files) == 5
    return manifest


@pytest.fixture(scope="module")
def job_service(tmp_path_factory):
    """Beam's job service in a process of its own; its address."""
    port_file = tmp_path_factory.mktemp("service") / "port"
    module = "apache_beam.runners.portability.local_job_service_main"
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--port_file", str(port_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(port_file.exists, by=process)
    yield f"localhost:{port_file.read_text()}"
    process.terminate()
    process.wait()


@pytest.fixture(params=["ours", "Beam's"])
def pool(request):
    """A pool of workers, as there is one next to a Flink task manager; its address."""
    port = free_port()
    words = ["pipeline.beam.pool", "--port", str(port)]
    path = os.environ["PATH"]
    if request.param == "Beam's":  # it starts workers as `python`, whichever that is
        words = ["apache_beam.runners.worker.worker_pool_main", "--service_port", str(port)]
        path = f"{Path(sys.executable).parent}:{path}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", *words], env={**os.environ, "PATH": path}, **quiet)
    wait_for(lambda: listens(port) or process.poll() is not None)
    assert process.poll() is None
    yield f"localhost:{port}"
    process.terminate()
    process.wait()


@pytest.mark.parametrize("where", ["LOOPBACK", "EXTERNAL"])
def test_a_job_service_gives_the_same_bytes(root, folder, reference, job_service, pool, where):
    out = folder / where
    options = {"job_endpoint": job_service, "environment_type": where}
    if where == "EXTERNAL":
        options["environment_config"] = pool
    more = [f"runner.options.{key}={value}" for key, value in options.items()]
    assert made(root, command(folder, out, "runner=spark", *more), out).files == reference.files


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """A corpus of many different words in two scripts, and a vocabulary that cuts them up."""
    folder = tmp_path_factory.mktemp("varied")
    draw = random.Random(7)
    letters, characters = "abcdefghijklmnopqrstuvwxyz", "中文學生去圖書館看書今天雨大"
    entries = [*letters, *(f"##{letter}" for letter in letters), *characters, *"。.,"]
    vocabulary(folder, entries)
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(20_000)]
    words += ["".join(draw.choices(characters, k=6)) + "。" for _ in range(5_000)]
    lines = [" ".join(draw.choices(words, k=12)) + "." for _ in range(6_000)]
    blocks = ["\n".join(lines[start : start + 20]) for start in range(0, len(lines), 20)]
    near = [block.replace(".", ",", 1) for block in blocks[::10]]  # each nearly one before
    (folder / "evaluation.txt").write_text(lines[17])
    (folder / "a.txt").write_text("\n\n".join(blocks + near))
    return folder


FILTERS = shlex.split(
    "filters.near_duplicates=0.8 filters.decontaminate=[{folder}/evaluation.txt] "
    "filters.maximum_non_letters=0.5 filters.banned=[zzzzzzzz] words=jieba corpus.mend=true"
)


@pytest.mark.parametrize("more", [[], FILTERS], ids=["plain", "filters and words"])
def test_eight_threads_of_one_process_give_the_bytes_of_one(root, varied, tmp_path, more):
    more = [word.format(folder=varied) for word in more]
    more += ["split_bytes=30000", "shard_bytes=100000"]
    single = made(root, command(varied, tmp_path / "local", *more), tmp_path / "local")
    script = str(Path(__file__).with_name("prepare_threads.py"))
    for number in range(3):
        out = tmp_path / f"threads{number}"
        interpreter, _, _, *words = command(varied, out, *more)
        manifest = made(root, [interpreter, script, *words], out, THREADS="8", PYTHONPATH=str(root))
        assert (manifest.files, manifest.figures) == (single.files, single.figures)


def options_of(runner, *more):
    """The options that a service is given."""
    return runners.service(configured("prepare", "+corpus=books", f"runner={runner}", *more).runner, {}, None)[1]


def test_clusters_are_told_what_the_configuration_says():
    flink = options_of("flink", "runner.options.flink_master=jm:8081")
    options = flink.view_as(pipeline_options.FlinkRunnerOptions)
    assert (options.flink_master, options.flink_version) == ("jm:8081", "1.19")
    assert options.flink_submit_uber_jar
    where = flink.view_as(pipeline_options.PortableOptions)
    assert where.environment_type == "EXTERNAL"
    pool = json.loads(where.environment_config)
    assert (pool["url"], set(pool["params"])) == ("localhost:50000", {"secret"})
    spark = options_of("spark", "runner.options.job_endpoint=js:8099")
    assert spark.view_as(pipeline_options.PortableOptions).job_endpoint == "js:8099"


def test_what_is_missing_is_named(folder):
    def error(*more):
        words = command(folder, folder / "never", *more)
        done = forked.run(words)
        assert done.returncode == 2
        return done.stderr

    assert "runner.options.flink_master" in error("runner=flink")
    for endpoint in (f"localhost:{free_port()}", "localhost:0", "nowhere.invalid:8099", "localhost"):
        lines = error("runner=spark", f"runner.options.job_endpoint={endpoint}").splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(f"error: runner.options.job_endpoint={endpoint}: ")
    assert "runner.options.oops: " in error("+runner.options.oops=1")


SERVICES = {"job_endpoint": "runner=spark runner.options.job_endpoint=localhost:1"}
SERVICES |= {"flink_master": "runner=flink runner.options.flink_master=localhost:1"}
SERVICES |= {"prism_location": "runner=prism runner.options.prism_location=/no/prism"}


@pytest.mark.parametrize(("key", "more"), SERVICES.items())
def test_a_service_that_does_not_answer_is_named(root, folder, more, key):
    words = command(folder, folder / "never", *more.split())
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == Exit.USER
    assert done.stderr.startswith(f"error: runner.options.{key}=")
    assert done.stderr.count("\n") == 1
    assert not (folder / "never").exists()


def test_an_address_where_another_service_answers_is_no_flink(job_service):
    with refused(ConfigError, key="runner.options.flink_master"):
        runners.check_flink(job_service)


def test_a_service_that_goes_in_mid_run_asks_for_a_restart(root, folder):
    port, out = free_port(), folder / "gone"
    module = "apache_beam.runners.portability.local_job_service_main"
    service = subprocess.Popen(
        [sys.executable, "-m", module, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: listens(port))
        words = command(folder, out, "runner=spark", "split_bytes=500", "duplicates=20")
        words += [f"runner.options.job_endpoint=localhost:{port}", "runner.options.environment_type=LOOPBACK"]
        process = subprocess.Popen(words, cwd=root, stderr=subprocess.PIPE, text=True)
        scratch = out.with_name(f".{out.name}.tmp") / ".scratch"
        wait_for(lambda: process.poll() is not None or list(scratch.glob("read-*.progress")))
        assert process.poll() is None
        service.kill()
        said = process.communicate(timeout=240)[1]
        assert (process.returncode, said.count("\n")) == (Exit.RESTART, 1), said
        assert not out.exists()
        assert not scratch.exists()
    finally:
        service.kill()
        service.wait()


def test_an_engine_that_nobody_knows_is_an_error():
    with refused(ConfigError, "storm", key="runner.name"):
        RunnerConfig(name="storm")


@pytest.mark.slow
def test_nothing_is_lost_where_hundreds_of_megabytes_cross_a_stage(tmp_path):
    """Beam 2.77 loses some of them without the guard in `engines.start`."""
    count, size = 4000, 80_000
    with (
        runners.start(RunnerConfig(workers=2), SMALL) as (engine, options),
        beam.Pipeline(runner=engine, options=options) as pipeline,
    ):
        _ = (
            pipeline
            | beam.Create(range(count))
            | "Spread" >> beam.Reshuffle()
            | "Fill" >> beam.Map(lambda number: (number, bytes([number % 256]) * size))
            | "Move" >> beam.Reshuffle()
            | "See" >> beam.Map(lambda pair: (tmp_path / str(pair[0])).write_text(str(len(pair[1]))))
        )
    seen = [path.read_text() for path in tmp_path.iterdir()]
    assert (len(seen), set(seen)) == (count, {str(size)})
