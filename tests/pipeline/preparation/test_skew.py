"""A document that is repeated, or very long, does not make a task large."""

import shlex
import sys

import pytest
import yaml

from pipeline.beam import steps
from pipeline.config import RunnerConfig
from pipeline.preparation.plan import make_plan, unpack
from pipeline.preparation.shuffle import unpack_block
from tests.support import forked, preparing

GIB = 2**30
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]


@pytest.fixture
def vocab(tmp_path):
    return preparing.vocabulary(tmp_path, [*WORDS, "."])


def story(start, sentences):
    """Return a text in lines, another one for each `start`."""
    lines = ([WORDS[(start + k * (k + n)) % len(WORDS)] for k in range(8)] for n in range(sentences))
    return "\n".join(" ".join(line) + "." for line in lines)


def made(vocab, out, corpus, *more):
    """The manifest of a run."""
    words = f"--config-dir {vocab} +corpus={corpus} vocab={vocab} validation_share=0.2 shard_bytes=20000"
    return preparing.run(out, words, *more)


def test_a_document_that_is_repeated_leaves_its_reading_task_once(vocab):
    texts = [story(7, 5)] * 300 + [story(k, 4) for k in range(20)] + [story(7, 5)] * 300
    (vocab / "a.txt").write_text("\n\n".join(texts))
    config = preparing.settings(
        "lines", f"{vocab}/a.txt", vocab, runner=RunnerConfig(exchange="engine"), minimum_characters=0
    )
    plan = make_plan(config, vocab)
    plan.scratch.mkdir()
    plan.claim()
    task, (element,) = steps.Tokenize(plan), unpack(next(iter(plan.packets())))
    task.setup()
    left = [blob for _, _, blob in task.work(*element)]
    assert sum(len(unpack_block(blob)) for blob in left) == len(set(texts))


@pytest.mark.slow
def test_the_first_of_the_documents_with_most_copies_is_kept(vocab, tmp_path):
    """A task leaves out what it knows of, and the task that writes the rest: together the same ones."""
    parts = {}
    for number, (name, weight) in enumerate({"a": 1, "b": 2.5, "c": 1.5}.items()):
        texts = [story(k % 40, 6) for k in range(10 * number, 10 * number + 90)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
        parts[name] = {"reader": "lines", "path": f"{tmp_path}/{name}.txt", "weight": weight}
    parts["b"]["language"] = "zh"  # divides sentences in another way
    corpus = {"name": "mixed", "reader": "mix", "parts": parts}
    (vocab / "corpus").mkdir()
    (vocab / "corpus" / "mixed.yaml").write_text(yaml.safe_dump(corpus))
    more = ["split_bytes=9000", "filters.near_duplicates=0.6"]
    single, few = (
        made(vocab, tmp_path / f"out{size}", "mixed", f"runner.task_bytes={size}", *more) for size in (10**6, 18000)
    )
    assert few.figures["documents"]["duplicate"] > 100
    assert (few.figures, few.files) == (single.figures, single.files)
    assert len(few.files) > 4


@pytest.mark.engines
@pytest.mark.parametrize("shape", ["200,000 times", "50 MB"])
@pytest.mark.parametrize("exchange", ["files", "engine"])
def test_a_task_stays_below_a_gibibyte(vocab, tmp_path, shape, exchange):
    """All tasks run in one process here; its largest size is that of the largest task, and more."""
    with (tmp_path / "text.txt").open("w") as file:
        if shape == "50 MB":
            file.write((story(3, 1400) + "\n") * 1100)
        else:
            file.write((story(3, 12) + "\n\n") * 200_000)
        file.write("".join(f"\n\n{story(start, 9)}" for start in range(100)))
    words = [
        sys.executable,
        *shlex.split(
            f"-m pipeline.prepare +corpus=lines vocab={vocab} corpus.path={tmp_path}/text.txt "
            f"out={tmp_path}/out validation_share=0.1 runner.exchange={exchange}"
        ),
    ]
    code = f"import resource, subprocess, sys\nsubprocess.run({words!r}, check=True)\n"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    ran = forked.fresh("-c", code, check=True)
    most = int(ran.stdout.split()[-1])
    size = (tmp_path / "text.txt").stat().st_size
    print(f"{shape}, {exchange}: {size / 1e6:.0f} MB of text, {most / GIB:.2f} GiB")
    assert most < GIB
