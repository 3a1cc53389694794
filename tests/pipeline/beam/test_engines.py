"""Real engines in processes of this machine: the bytes of `runner=local`, whatever dies.

`make test-engines` runs this, and says and skips what a machine lacks (Java, Maven, Go, a network).
"""

import json
import os
import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.errors import Exit
from pipeline.records.manifest import require_manifest
from tests.pipeline.beam.engines import Flink, Prism, Spark, signal_process, started_by
from tests.support import preparing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]
ENGINES = {"prism": Prism, "flink": Flink, "spark": Spark}


@pytest.fixture(scope="module", params=ENGINES)
def cluster(request, root, tmp_path_factory):
    """An engine that runs."""
    made = ENGINES[request.param](root, tmp_path_factory.mktemp(request.param))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus that takes some seconds, and a vocabulary."""
    folder = tmp_path_factory.mktemp("corpus")
    blocks = preparing.random_documents(folder, seed=7, words=20_000, lines=40_000, size=20)
    (folder / "a.txt").write_text("\n\n".join(blocks))
    return folder


def on(cluster):
    """The words that name an engine."""
    if cluster is None:
        return []
    given = {f"runner.options.{key}": value for key, value in cluster.options.items()}
    return [f"runner={cluster.runner}", *(f"{key}={value}" for key, value in given.items())]


def command(folder, out, cluster, *more):
    """A run of `prepare` on an engine; None: on the local one."""
    return [
        sys.executable,
        *shlex.split(
            f"-m pipeline.prepare +corpus=lines corpus.path={folder}/a.txt vocab={folder} out={out} "
            "validation_share=0.1 split_bytes=100000 shard_bytes=400000 sequence_length=64 "
            "runner.start_timeout=240 runner.task_bytes=100000"
        ),
        *on(cluster),
        *more,
    ]


def done(root, words, out, notes=0):
    """The manifest of a run that succeeds, with at most some notes that it was tried again."""
    ran = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = ran.stderr.splitlines()
    assert len(said) <= notes, ran.stderr
    assert all(map(RETRIED.search, said)), ran.stderr
    return require_manifest(out, "prepare", "out")


@pytest.fixture(scope="module")
def reference(root, corpus):
    """What the local engine makes."""
    return done(root, command(corpus, corpus / "local", None), corpus / "local")


def parts(data, folder):
    """A part of a mix for each reader, and a nearly equal copy of one part."""
    articles = (data / "wiki_text/en_2021/wiki_11").read_text().split("</doc>")
    near = [{"text": article.partition(">")[2] + " More."} for article in articles if article]
    (folder / "near.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in near[::2]))
    (folder / "lines.txt").write_text((data / "wikitext2/valid.txt").read_text()[:200_000])
    table = pa.table({"text": [each["text"] for each in near[::3]]})
    pq.write_table(table, folder / "near.parquet")
    found = {
        "lines": {"reader": "lines", "path": f"{folder}/lines.txt"},
        "text": {"reader": "text", "path": f"{data}/wikitext2/valid.txt"},
        "books": {"reader": "books", "path": f"{data}/books/William_Shakespeare*"},
        "jsonl": {"reader": "jsonl", "path": f"{folder}/near.jsonl", "weight": 2.5},
        "parquet": {"reader": "parquet", "path": f"{folder}/near.parquet", "weight": 0.5},
        "english": {"reader": "wikiextractor", "path": f"{data}/wiki_text/en_2021/wiki_1[12]"},
        "chinese": {"reader": "wikiextractor", "path": f"{data}/wiki_text/zh_2024/AA_wiki_00", "language": "zh"},
        "dumps": {"reader": "wikipedia", "path": f"{data}/wiki_xml/minidumps/*.xml.bz2"},
        "sample": {"reader": "sample", "options": {"packages": ["tqdm", "yaml"]}},
    }
    return found


@pytest.fixture(scope="session")
def mixed(root, shared_data, tmp_path_factory):
    """A run with every reader and every filter, and what the local engine makes of it."""
    folder = tmp_path_factory.mktemp("mixed")
    corpus = {"name": "all", "reader": "mix", "parts": parts(shared_data, folder)}
    (folder / "corpus").mkdir()
    (folder / "corpus" / "all.yaml").write_text(yaml.safe_dump(corpus))
    (folder / "banned.txt").write_text("(?i)lorem ipsum\n")
    words = [
        sys.executable,
        *shlex.split(
            f"-m pipeline.prepare --config-dir {folder} +corpus=all "
            f"vocab={shared_data}/vocab/bert-base-uncased-vocab.txt validation_share=0.1 shard_bytes=400000 "
            "split_bytes=300000 runner.task_bytes=300000 runner.start_timeout=240 filters.near_duplicates=0.7 "
            "filters.maximum_characters=300000 filters.maximum_non_letters=0.3"
        ),
        "filters.banned=[refer to]",
        *shlex.split(
            f"filters.banned_file={folder}/banned.txt filters.ngram=8 "
            f"filters.decontaminate=[{shared_data}/glue/QNLI/dev.tsv]"
        ),
    ]
    out = folder / "local"
    made = done(root, [*words, f"out={out}"], out)
    filtered = made.figures["filtered"]
    assert set(filtered) == {"long", "non-letters", "banned", "contaminated", "near duplicate"}
    assert filtered["near duplicate"] > 20
    return words, made


@pytest.mark.parametrize("exchange", ["engine", "files"])
def test_every_reader_and_filter_gives_the_bytes_of_the_local_engine(cluster, root, mixed, tmp_path, exchange):
    words, expected = mixed
    out = tmp_path / "out"
    cluster.start()
    words = [*words, *on(cluster), f"runner.exchange={exchange}", f"out={out}"]
    made = done(root, words, out)
    assert (made.files, made.figures) == (expected.files, expected.figures)
    assert len(made.files) > 2


FAULTS = {
    "prism": ["worker process", "prism"],
    "flink": ["worker process", "pool", "taskmanager1", "cancel", "jobmanager"],
    "spark": ["worker process", "pool", "worker1", "cancel", "jobserver"],
}
SURVIVED = {  # the engine does the work again, or `prepare` gives it the job again
    "prism": {"worker process"},
    "flink": {"worker process", "taskmanager1"},
    "spark": {"worker process", "worker1"},
}

RETRIED = re.compile(r"; retrying from the start \(\d+ of \d+ tasks? had read, \d+ of \d+ had written\)$")


@pytest.mark.parametrize("number", range(5))
def test_a_fault_in_mid_run_ends_in_the_same_bytes_or_in_one_line(cluster, root, corpus, reference, tmp_path, number):
    faults = FAULTS[cluster.runner]
    if number >= len(faults):
        pytest.skip("there are no more faults of this engine")
    fault, out = faults[number], tmp_path / "out"
    cluster.start()  # what the fault before has killed
    words = command(corpus, out, cluster)
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(words, cwd=root, stderr=errors)
        scratch = out.with_name(f".{out.name}.tmp") / ".scratch"

        def under_way():
            assert process.poll() is None, f"over too soon: {(tmp_path / 'stderr').read_text()}"
            return bool(list(scratch.glob("read-*.progress")))

        wait_for(under_way, "a first split")
        strike(cluster, fault, process.pid)

        def over():
            cluster.tend()
            return process.poll() is not None

        wait_for(over, "the end", 900)
        code = process.wait()
    said = (tmp_path / "stderr").read_text()
    if fault in SURVIVED.get(cluster.runner, ()):
        assert code == 0, said
        notes = said.splitlines()
        assert all(map(RETRIED.search, notes)), said
        assert len(notes) <= (2 if cluster.runner == "flink" else 1), said  # a task manager may end by itself, too
    elif fault == "pool" and code == 0:  # its workers went on, and no other was needed
        assert said == ""
    else:
        *notes, last = said.splitlines()
        assert all(RETRIED.search(note) for note in notes), said
        assert code == Exit.RESTART, said
        assert last.startswith(f"stopped: runner={cluster.runner}: ")
        if fault == "pool":  # the engine asked for another worker, as Spark does at each step
            assert "environment_config" in last
        assert not out.exists()
        assert not scratch.exists()
        cluster.start()
        done(root, words, out, notes=1)  # a worker of the engine before may leave now
    assert require_manifest(out, "prepare", "out").files == reference.files


def strike(cluster, fault, driver):
    """Do what the fault says."""
    if fault == "worker process":
        signal_process(cluster.workers(driver)[0])
    elif fault == "prism":
        signal_process(started_by(driver, "--job_port")[0])
    elif fault == "cancel":
        cluster.cancel()
    else:
        cluster.kill(fault)


def test_a_mistake_in_the_input_is_one_line(cluster, root, corpus, tmp_path):
    cluster.start()
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\noops\n')
    words = command(corpus, tmp_path / "out", cluster, "+corpus=jsonl", "corpus.reader=jsonl")
    words.remove("+corpus=lines")
    words.remove(f"corpus.path={corpus}/a.txt")
    ran = subprocess.run(
        [*words, f"corpus.path={tmp_path}/a.jsonl"], cwd=root, capture_output=True, text=True, check=False
    )
    assert ran.returncode == Exit.USER, ran.stderr
    assert ran.stderr.startswith(f"error: {tmp_path}/a.jsonl, line 2: ")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_pool_that_starts_no_worker_is_named(cluster, root, corpus, tmp_path):
    """Beam's own pool starts `python`, whichever PATH has: here one that ends at once."""
    if cluster.runner == "prism":
        pytest.skip("it has no pool but that of the run")
    cluster.start()
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    port = cluster.ports[-1] + 1
    process = subprocess.Popen(
        [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for place in (f"localhost:{port}", "localhost:1"):
            words = command(corpus, tmp_path / "out", cluster)
            words = [each for each in words if "environment_config" not in each]
            words += [f"runner.options.environment_config={place}", "runner.start_timeout=50"]
            ran = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
            assert ran.returncode == Exit.USER, ran.stderr
            assert f"runner.options.environment_config={place}: " in ran.stderr
            assert ran.stderr.count("\n") == 1
    finally:
        process.terminate()
        process.wait()
