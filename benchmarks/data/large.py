"""A large corpus whose every document is known: cost, counts, and near duplicates found, size by size.

`python -m benchmarks.data.large --gigabytes 1 4` writes documents in five scripts (.jsonl.gz), as a
function of their number: sentences of the sample corpus with words exchanged. Of each 20, one
equals another, one nearly does (Jaccard index of word 5-grams about 0.9) and one only resembles
another (below 0.7). There is one document of 100 MB, one line that is not JSON, and one file that
is not an archive. Then `prepare` with near duplicates runs, and each count is compared with what was
written. Said and used disk are without the corpus. Rows of 32 GB need 63 GB of disk, and 15 for the corpus.

    --gigabytes 0.05 --giant 5    the small form, in a minute
    --text /dev/shm               the corpus in memory
    --engine flink                on two workers of a cluster on this machine, whose own time is not counted
    --peer PYTHON                 then datatrove's MinHash alone, with as many hashes: see `near_peers`
"""

import argparse
import contextlib
import gzip
import itertools
import json
import multiprocessing
import operator
import random
import re
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.data import engines
from benchmarks.data.prepare import learn, measure, read, stage
from benchmarks.shared import heading
from pipeline.config import FiltersConfig
from pipeline.console import formatting
from pipeline.filtering import minhash
from pipeline.records.manifest import Manifest, require_manifest

PER_FILE = 16_000
EQUAL, NEAR, ALIKE = 17, 18, 19  # of the numbers modulo 20
THRESHOLD = 0.8  # Jaccard index from which a document is left out
EXCHANGED = {NEAR: 0.01, ALIKE: 0.15}  # share of the words
LATIN = "etaoinshrdlcumwfgypbvkjxqz"
SCRIPTS = [
    *[""] * 6,
    "еаоинтсрвлкмдпуяызбгчйхжшю",
    "εταοινσηρλδκμπυγχθφωβξψζέά",
    "कातरनसमपलवयहगदजबधचशभणखटथडष",
    "的一是不了人在有我他这个们中来上大为和国地到以说时要",
]


@dataclass(frozen=True)
class Corpus:
    """Documents by number; a pair's later one has the number of the other in its id."""

    sentences: list[list[str]]
    words: list[str]
    count: int

    def source(self, number: int) -> int:
        """Return the document that another is made from; no two are made from one."""
        block, kind = divmod(number, 20)
        blocks = self.count // 20
        return (block + blocks // 3) % blocks * 20 + kind - EQUAL

    def id(self, number: int) -> str:
        """Return the id of a document: its number, and for a made one that of its source."""
        return f"{number}" if number % 20 < EQUAL else f"{number}-{number % 20}-{self.source(number)}"

    def text(self, number: int) -> str:
        """Return a document of 10 to 80 sentences."""
        kind = number % 20
        if kind >= EQUAL:
            first = self.text(self.source(number))
            return first if kind == EQUAL else self.edited(first, number, EXCHANGED[kind])
        draw = random.Random(number)
        return self.written(draw, 10 + int(70 * draw.random() ** 3))

    def written(self, draw: random.Random, count: int) -> str:
        """Return new text of some sentences: no two share more than a few words in a row."""
        script = draw.choice(SCRIPTS)
        lines = []
        for sentence in draw.choices(self.sentences, k=count):
            words = sentence.copy()
            for place in range(draw.randrange(3), len(words), 3):
                words[place] = draw.choice(self.words)
            lines.append(" ".join(words) + ".")
        text = "\n".join(" ".join(lines[start : start + 6]) for start in range(0, count, 6))
        return text.lower().translate(dict(zip(map(ord, LATIN), script, strict=True))) if script else text

    def edited(self, text: str, number: int, share: float) -> str:
        """Return a text with words exchanged."""
        draw, words = random.Random(number), text.split(" ")
        for place in draw.sample(range(len(words)), round(share * len(words)) or 1):
            words[place] = words[draw.randrange(len(words))].replace("\n", "") + "x"
        return " ".join(words)


def corpus_of(gigabytes: float) -> Corpus:
    """Return a corpus of about this size."""
    pool = [line.split() for text in itertools.islice(read(None), 4000) for line in re.split(r"(?<=\.)\s+|\n", text)]
    sentences = [words for words in pool if 8 <= len(words) <= 40 and "".join(words).isascii()]
    words = sorted({word for line in sentences for word in line if word.isalpha() and len(word) > 3})
    sample = Corpus(sentences, words, 2000)
    size = sum(len(sample.text(number).encode()) for number in range(2000)) / 2000
    return Corpus(sentences, words, max(round(gigabytes * 1e9 / size / 20), 3) * 20)


def write_file(corpus: Corpus, folder: Path, file: int) -> int:
    """Write one file; return the bytes of its documents' text."""
    size = 0
    with gzip.open(folder / f"{file:06d}.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as out:
        for number in range(file * PER_FILE, min((file + 1) * PER_FILE, corpus.count)):
            text = corpus.text(number)
            size += len(text.encode())
            out.write(json.dumps({"id": corpus.id(number), "text": text}, ensure_ascii=False) + "\n")
    return size


def write(corpus: Corpus, folder: Path, giant: float) -> int:
    """Write the corpus; return the bytes of its text."""
    with multiprocessing.Pool() as pool:
        numbers = range(-(-corpus.count // PER_FILE))
        size = sum(pool.starmap(write_file, ((corpus, folder, number) for number in numbers)))
    draw, parts, length = random.Random("giant"), list[str](), 0
    while length < giant * 1e6:
        parts.append(corpus.written(draw, 60))
        length += len(parts[-1].encode())
    text = "\n".join(parts)
    with gzip.open(folder / "giant.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as out:
        out.write(json.dumps({"id": "giant", "text": text}, ensure_ascii=False) + "\nno JSON\n")
    (folder / "broken.jsonl.gz").write_bytes(random.Random(0).randbytes(1 << 20))
    return size + length


def peak(folder: Path, over: threading.Event, found: list[int]) -> None:
    """Append the bytes on disk below a folder, every second."""
    while not over.wait(1):
        with contextlib.suppress(FileNotFoundError):  # a folder has gone meanwhile: look again
            found.append(sum(map(blocks, folder.rglob("*"))))


def blocks(path: Path) -> int:
    """Return the bytes of a file on its disk; 0 where it is gone."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return the word 5-grams of a text."""
    words = re.findall(r"\w+", text)
    return set(zip(*(words[start:] for start in range(5)), strict=False))


def judged(corpus: Corpus, made: Manifest, out: Path) -> Iterator[str]:
    """Yield each difference between the counts and what was written, and what was found of near duplicates."""
    counts, each = made.figures["documents"], corpus.count // 20
    wanted = {"read": corpus.count + 1, "duplicate": each, "filtered": each, "written": corpus.count + 1 - 2 * each}
    for name, count in wanted.items():
        if counts.get(name, 0) != count:
            yield f"{name}: {counts.get(name, 0):,} instead of {count:,}"
    gone = Counter(left_out(out))
    complete = gone.total() == counts["filtered"]
    found = Counter[str]()
    for number in range(NEAR, corpus.count, 20) if complete else ():
        source = corpus.source(number)
        dropped = gone[corpus.id(number)] + gone[corpus.id(source)]
        found["found" if dropped == 1 else "both" if dropped else "missed"] += 1
        if not dropped:
            one, other = (shingles(corpus.text(n)) for n in (number, source))
            yield f"missed {corpus.id(number)}: Jaccard index {len(one & other) / len(one | other):.3f}"
    near = dict(found) if complete else "more rows than _dropped.feather keeps"
    yield f"near: {near}; skipped: {made.figures['skipped']}"


def compared(corpus: Corpus, work: Path, size: int, python: str) -> Iterator[str]:
    """Yield the cost of a peer's near duplicates in the same files, and how often it agrees with ours."""
    config = FiltersConfig(near_duplicates=THRESHOLD)
    rows = minhash.rows_per_band(config.permutations, THRESHOLD)
    numbers = map(str, (config.permutations // rows, rows, config.shingle))
    script = str(Path(__file__).with_name("near_peers.py"))
    cost = measure([python, script, str(work / "text.jsonl"), str(work / "peer"), *numbers])
    yield f"datatrove: {size / cost.cpu / 1e6:.2f} MB/s of processor time, {cost.wall:.0f} s, {cost.memory:.2f} GiB"
    found = {"ours": left_out(work / "run" / "out"), "datatrove": (work / "peer" / "gone.txt").read_text().split()}
    for kind, name in ((NEAR, "near"), (ALIKE, "alike")):
        pairs = [{corpus.id(n), corpus.id(corpus.source(n))} for n in range(kind, corpus.count, 20)]
        left = {who: [not pair.isdisjoint(gone) for pair in pairs] for who, gone in found.items()}
        same = sum(map(operator.eq, *left.values())) / len(pairs)
        counts = ", ".join(f"{who} {sum(each):,}" for who, each in left.items())
        yield f"of {len(pairs):,} {name} pairs, one is left out by: {counts}; the same verdict in {same:.2%}"


def left_out(out: Path) -> list[str]:
    """Return the ids of the documents that a stage left out by its filters."""
    with pa.memory_map(str(out / "_dropped.feather")) as file:
        rows = pa.ipc.open_file(file).read_all().to_pylist()
    return [row["id"] for row in rows if row["outcome"] == "filtered"]


def arguments() -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--giant", type=float, default=100, help="megabytes of the largest document")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=list(engines.CLUSTERS))
    parser.add_argument("--peer", help="Python of an environment with datatrove[processing] and spacy")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--text", type=Path, help="where the corpus is; default: there")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    columns = "text, GB | documents | MB/s of CPU time | s | peak memory, GiB | disk, GB | said, GB"
    notes = []
    for row, gigabytes in enumerate(options.gigabytes):
        corpus = corpus_of(gigabytes)
        temporary = tempfile.TemporaryDirectory
        with contextlib.ExitStack() as stack:
            folders = (stack.enter_context(temporary(dir=place or options.folder)) for place in (None, options.text))
            (work, text), over, sizes = map(Path, folders), threading.Event(), [0]
            (work / "text.jsonl").symlink_to(text)
            size = write(corpus, text, options.giant)
            (work / "first.jsonl").write_text(
                "".join(json.dumps({"text": corpus.text(number)}) + "\n" for number in range(2000))
            )
            (work / "tokenizer.json").write_text(learn(work / "first.jsonl"))
            (work / "run").mkdir()
            runner = [f"runner.workers={options.workers}"]
            if options.engine:
                runner = engines.words_of(stack.enter_context(engines.started(options.engine, work / "engine")))
            command = [
                *stage(work, "text"),
                *("corpus.options.id=id", "corpus.on_error=skip", f"filters.near_duplicates={THRESHOLD}"),
                *(*runner, f"out={work}/run/out"),
            ]
            plan = subprocess.run([*command, "dry_run=true"], capture_output=True, text=True, check=True).stdout
            said = re.search(r"disk +([\d.,]+ [kMGT]?B)", plan)
            watch = threading.Thread(target=peak, args=(work / "run", over, sizes))
            watch.start()
            cost = measure(command)
            over.set()
            watch.join()
            made = require_manifest(work / "run" / "out", "prepare", "out")
            if not row:
                print(heading(columns), flush=True)
            rate = f"{'' if options.engine else f'{size / cost.cpu / 1e6:.2f}'} | {cost.wall:.0f} | {cost.memory:.2f}"
            print(
                f"| {size / 1e9:.2f} | {corpus.count + 1:,} | {rate} "
                f"| {max(sizes) / 1e9:.2f} | {formatting.byte_count(said[1]) / 1e9 if said else 0:.2f} |",
                flush=True,
            )
            notes += [f"{gigabytes} GB: {note}" for note in judged(corpus, made, work / "run" / "out")]
            notes.append(f"{gigabytes} GB: {made.spent}")
            if options.peer:
                notes += [f"{gigabytes} GB: {note}" for note in compared(corpus, work, size, options.peer)]
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
