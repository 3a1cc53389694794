"""Text to shards: megabytes per second of CPU time, and memory, compared with other libraries.

`python -m benchmarks.data.prepare` uses the sample corpus, repeated as needed; `--text FOLDER` uses
WikiExtractor's output instead. Every peer is a separate process on the same file, with one thread,
measured from start to end: CPU time of the process and its children, and the peak memory of any
one. Peers alternate; the best of `--passes` counts.

Beam imports pandas in each process if it is installed: install `datasets` in a separate
environment, `python -m venv peers; peers/bin/pip install datasets sentencex; … --python
peers/bin/python`.

    --megabytes 25 --workers 1 2      time
    --megabytes 1000 --peers ours     memory does not grow with the corpus
"""

import argparse
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.data.samples import learn_vocab
from benchmarks.shared import heading, keep
from pipeline import readers
from pipeline.config import CorpusConfig
from pipeline.records.manifest import require_manifest
from pipeline.text import clean
from pipeline.tokenization import wordpiece

PEERS = ("ours", "datasets", "tokenizers")
SAMPLE = ["python", "numpy", "scipy", "sklearn", "networkx", "sympy", "matplotlib", "apache_beam"]


@dataclasses.dataclass
class Cost:
    """Resources used by a process and its children."""

    cpu: float  # seconds
    wall: float
    memory: float  # GiB, of the largest process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a folder of WikiExtractor's output")
    parser.add_argument("--vocab", type=Path, help="a vocabulary; default: learn one")
    parser.add_argument("--megabytes", type=float, default=25)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1], help="processes of ours")
    parser.add_argument("--python", default=sys.executable, help="a Python with `datasets` installed")
    parser.add_argument("--passes", type=int, default=2)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        size = make_inputs(options.text, work, options.megabytes, options.vocab) / 1e6
        costs: dict[str, Cost] = {}
        for _ in range(options.passes):
            for name, command in commands(options, work).items():
                cost = measure(command)
                if name not in costs or cost.cpu < costs[name].cpu:
                    costs[name] = cost
    print(heading("whole process | MB/s of CPU time | speed-up of ours | MB/s | memory, GiB"))
    first = next(iter(costs.values()))
    for name, cost in costs.items():
        if name in PEERS:
            keep(f"prepare: {name}", cost.cpu / first.cpu)
        print(
            f"| {name} | {size / cost.cpu:.2f} | {cost.cpu / first.cpu:.1f} x "
            f"| {size / cost.wall:.2f} | {cost.memory:.2f} |"
        )


def read(folder: Path | None) -> Iterator[str]:
    """Yield documents as cleaned text."""
    corpus = CorpusConfig(name="sample", reader="sample", options={"packages": SAMPLE})
    if folder is not None:
        corpus = CorpusConfig(name="text", reader="wikiextractor", path=str(folder))
    reader = readers.open_corpus(corpus, "")
    for split in reader.splits(1 << 26):
        for document in reader.read(split, readers.ReadLog()):
            if text := clean.clean(document.text):
                yield text


def write(folder: Path | None, path: Path, most: float) -> tuple[int, int]:
    """Write documents as JSON lines in numbered copies; return the documents and copies written."""
    texts = list(read(folder))
    size = documents = copy = 0
    with path.open("w", encoding="utf-8") as file:
        while size < most:
            copy += 1
            for text in texts:
                numbered = text if copy == 1 else f"Copy {copy}.\n{text}"
                size += file.write(json.dumps({"text": numbered}, ensure_ascii=False) + "\n")
                documents += 1
                if size >= most:
                    break
    return documents, copy


def learn(path: Path) -> str:
    """Learn a vocabulary from the first texts; return its tokenizer.json."""
    with path.open(encoding="utf-8") as lines:
        return learn_vocab([json.loads(line)["text"] for line in itertools.islice(lines, 5000)])


def make_inputs(folder: Path | None, work: Path, megabytes: float, vocab: Path | None = None) -> int:
    """Write a text and its vocabulary, and print what it is; return its bytes."""
    documents, copies = write(folder, work / "text.jsonl", megabytes * 1e6)
    size = (work / "text.jsonl").stat().st_size
    (work / "tokenizer.json").write_text(wordpiece.read(vocab) if vocab else learn(work / "text.jsonl"))
    print(f"{size / 1e6:.1f} MB, {documents:,} documents ({copies} copies of the text)\n", flush=True)
    return size


def commands(options: argparse.Namespace, work: Path) -> dict[str, list[str]]:
    text, tokenizer = f"{work}/text.jsonl", f"{work}/tokenizer.json"
    found: dict[str, list[str]] = {}
    for peer in options.peers:
        if peer != "ours":
            script = str(Path(__file__).with_name("prepare_peers.py"))
            found[peer] = [options.python, script, peer, text, tokenizer]
            continue
        for count in options.workers:
            more = [f"runner.workers={count}", *(["split_bytes=8000000"] if count > 1 else [])]
            found[f"prepare, {count} worker{'s' * (count > 1)}"] = stage(work, "text", *more)
    return found


def stage(work: Path, text: str, *more: str) -> list[str]:
    """Return the command of `prepare` for a file of `write`."""
    line = f"-m pipeline.prepare +corpus=jsonl corpus.path={work}/{text}.jsonl vocab={work}/tokenizer.json"
    return [sys.executable, *line.split(), f"out={work}/out", "force=true", *more]


def sums(out: Path, names: str = "*") -> dict[str, str]:
    """Return the checksums of the files of a finished stage."""
    files = require_manifest(out, "prepare", "out").files
    return {name: files[name]["sha256"] for name in files if fnmatch(name, names)}


def measure(command: list[str], kill: float | None = None) -> Cost:
    """Run a command to its end, or kill its processes after some seconds; return its cost."""
    threads = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    alone, environment = kill is not None, os.environ | threads
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=alone)
    if kill is not None:
        time.sleep(kill)
        os.killpg(process.pid, signal.SIGKILL)
    _, status, used = os.wait4(process.pid, 0)
    if status and kill is None:
        raise SystemExit(f"failed: {' '.join(command)}")
    cpu = used.ru_utime + used.ru_stime
    return Cost(cpu, time.monotonic() - began, used.ru_maxrss / 2**20)


if __name__ == "__main__":
    main()
