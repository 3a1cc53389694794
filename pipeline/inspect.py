"""`python -m pipeline.inspect DIR`: contents of a folder of shards: counts, lengths, instances.

Prints the document counts of the corpus, verifies every file's checksum, draws a histogram of
lengths, and shows some instances masked as in training. With `--train FOLDER --step N` these are
the first ones of that step, exactly as this training masked them.
"""

import argparse
import sys

if __name__ == "inspect":  # `python pipeline/run.py`: it hides the library's module of this name
    name = sys.argv[0].rpartition("/")[2].removesuffix(".py")
    print(f"error: {sys.argv[0]}: start it as python -m pipeline.{name}", file=sys.stderr)
    sys.exit(2)

import functools
import itertools
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model.config import DataConfig, ObjectiveConfig, ScheduleConfig
from model.finetuning.features import frame
from model.loader.masking import Masker
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.common.schema import check
from pipeline.console.arguments import Arguments
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError, writable
from pipeline.records.manifest import MANIFEST, Manifest, require_manifest
from pipeline.records.metrics import OUTCOMES, CorpusCounts, TrainingSummary
from pipeline.shards import SPLITS, Shard, open_folder
from pipeline.storage import places
from pipeline.storage.checksums import sha256
from pipeline.tokenization.wordpiece import PairFrame, WordPiece

SPACES = ("Ġ", "▁")  # as they begin an entry
BARS = 16  # maximum bars of the histogram


def describe_shards(manifest: Manifest) -> Iterator[str]:
    """Yield lines about the shards, their corpus and their settings."""
    config, counts = manifest.config, CorpusCounts.of(manifest)
    yield f"{manifest.summary} (made {manifest.finished} in {manifest.seconds:.1f} s)"
    yield (
        f"corpus {config['corpus']['name']}, pairs {config['pairs']}, "
        f"{f'words by {words}, ' if (words := config.get('words')) else ''}at most "
        f"{counts.sequence_length} tokens, seed {config['seed']}, vocabulary of "
        f"{counts.vocab_size:,} ({counts.tokenizer[:12]})"
    )


def balance(counts: CorpusCounts) -> Iterator[str]:
    """Yield lines with the documents' counts, skipped files, notes and warnings."""
    documents = counts.documents
    outcomes = " + ".join(f"{documents[outcome]:,} {outcome}" for outcome in OUTCOMES)
    yield f"{pluralize(documents['read'], 'document')} read = {outcomes}"
    if read := counts.totals["tokens_read"]:
        lost = "".join(f" + {count:,} {reason}" for reason, count in counts.lost.items() if count)
        yield f"{pluralize(read, 'token')} read = {counts.totals['tokens_used']:,} in shards{lost}"
    for kind in ("filtered", "skipped", "notes"):
        if reasons := getattr(counts, kind):
            listed = ", ".join(f"{reasons[reason]:,} {reason}" for reason in sorted(reasons))
            yield f"{kind}: {listed}"
    if counts.packing:
        yield counts.packing_line
    yield from (f"warning: {text}" for text in counts.warnings)
    for kind, found in counts.named.items():
        yield from (f"{kind}: {line}" for line in found[:5])
        if len(found) > 5:
            yield f"{kind}: more in {MANIFEST}"


def check_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield each file of the manifest with its problem, which is empty for an intact file."""
    for name, about_file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            yield name, "missing"
        elif path.stat().st_size != about_file["bytes"]:
            yield name, f"{path.stat().st_size:,} bytes instead of {about_file['bytes']:,}"
        else:
            yield name, "" if sha256(path) == about_file["sha256"] else "wrong checksum"


def bars(lengths: Mapping[int, int], width: int) -> Iterator[str]:
    """Yield a histogram of instance lengths in tokens, one line per range."""
    low, high = min(lengths), max(lengths)
    step = -(-(high - low + 1) // BARS)
    counts = [0] * (-(-(high - low + 1) // step))
    for length, count in lengths.items():
        counts[(length - low) // step] += count
    room = max(width - 30, 10)
    for index, count in enumerate(counts):
        first = low + index * step
        drawn = "█" * round(room * count / max(counts))
        last = min(first + step - 1, high)
        yield f"{f'{first}-{last}' if last > first else first!s:>9} {count:>12,} {drawn}"


def masked_text(shard: Shard, row: int, wordpiece: WordPiece, masker: Masker) -> str:
    """Return an instance as text, with masked positions as {input|label}."""
    tokens = shard.values[shard.offsets[row] : shard.offsets[row + 1]]
    a, b = tokens[: shard.a_len[row]], tokens[shard.a_len[row] :]
    stored, _ = frame(wordpiece, a, b if len(b) else None, PairFrame())  # ids as in the shard
    continues = stored & shard.info.word_bit
    ids = stored - continues
    special = int(masker.is_special(ids).sum())
    counts = masker.counts(np.array([len(ids)]), np.array([len(ids) - special]))
    masks = masker.draw(ids, np.array([0, len(ids)]), np.array([row]), counts)
    shown = entries(wordpiece)
    words = [shown[token] for token in ids]
    marked = label_tokens(words, masks.positions, masks.labels, shown)
    for index in np.flatnonzero(continues).tolist():
        words[index] = f"##{words[index].removeprefix('##')}"
    return join_tokens(marked.get(index, word) for index, word in enumerate(words))


def label_tokens(
    words: Sequence[str], positions: Iterable[Any], labels: Iterable[Any], shown: Sequence[str]
) -> dict[int, str]:
    """Return the tokens at masked positions as {input|label}, by position."""
    pairs = zip(positions, labels, strict=True)
    return {int(at): f"{{{words[int(at)]}|{shown[int(label)]}}}" for at, label in pairs}


@functools.cache
def entries(wordpiece: WordPiece) -> list[str]:
    """Return the entries of a vocabulary as WordPiece writes them, "##" within a word.

    Byte-level BPE and SentencePiece mark the beginnings of words instead, by the space before them.
    A part of a character has no text, nor have special entries: they are shown as they are.
    """
    if wordpiece.is_wordpiece:
        return wordpiece.vocab
    texts = wordpiece.library.decode_batch([[number] for number in range(wordpiece.size)])
    return [
        f"##{word}" if is_word(word) and not entry.startswith(SPACES) else word or entry
        for word, entry in zip(map(str.strip, texts), wordpiece.vocab, strict=True)
    ]


def is_word(text: str) -> bool:
    """Return whether a text is of letters and of marks on them, in any script."""
    return text != "" and all(unicodedata.category(character)[0] in "LM" for character in text)


def join_tokens(words: Iterable[str]) -> str:
    """Return tokens as text; segment B may begin within a word."""
    return re.sub(r"(?<![\]>]) ##", "", " ".join(words))


def labels(shard: Shard) -> tuple[str, str]:
    """Return the meaning of `is_random_next`, false and true."""
    if shard.info.pairs == "none":
        return "full sentences", ""
    return ("in order", "swapped") if shard.info.pairs == "sop" else ("next", "random next")


def samples(shards: Sequence[Shard], count: int, wordpiece: WordPiece, seed: int) -> Iterator[str]:
    """Yield some instances, sampled from all shards."""
    info = shards[0].info
    key = counter_rng.key(seed, "inspect")
    masker = Masker(wordpiece, ObjectiveConfig(name="mlm"), info.sequence_length, key)
    bounds = np.cumsum([shard.rows for shard in shards])
    for index in counter_rng.permutation(key, int(bounds[-1]))[:count].tolist():
        number = int(np.searchsorted(bounds, index, side="right"))
        shard = shards[number]
        row = index - int(bounds[number]) + shard.rows
        kind = labels(shard)[int(shard.is_random_next[row])]
        yield f"{shard.path.name} row {row}, {kind}:"
        yield f"  {masked_text(shard, row, wordpiece, masker)}"


def replay_step(folder: Path, train: str, step: int, count: int, wordpiece: WordPiece) -> Iterator[str]:
    """Yield the first `count` instances of a step (from 1) of a training, as it masked them.

    Raises:
        InputError: the training is not finished, had fewer steps, or did not read this folder.
    """
    from model.loader.loader import Loader
    from model.training.schedule import Schedule

    trained = require_manifest(Path(train), "train", "--train")
    config = trained.config
    data, objective = DataConfig(**config["data"]), ObjectiveConfig(**config["objective"])
    summary = TrainingSummary.of(trained)
    steps = config["steps"] or summary.planned_steps
    if folder.resolve() not in [Path(each).resolve() for each in data.folders]:
        raise InputError(f"was trained on {', '.join(data.folders)}, not on {folder}", "--train", train)
    if not 1 <= step <= steps:
        raise InputError(f"must be from 1 to {steps:,}", "--step", step)
    schedule = Schedule(ScheduleConfig(**config["schedule"]), steps, config["batch_size"], objective.mask_shares)
    sizes, share = [schedule.batch_size(each) for each in range(step)], schedule.mask_share(step - 1)
    yield f"trained: {summary.line}"
    loader = Loader(data, objective, wordpiece, config["seed"], "train")
    made = loader.batch(sum(sizes[:-1]), min(count, sizes[-1]), share=share).batches[0]
    shown = entries(wordpiece)
    words = [shown[token] for token in made.input_ids]
    if objective.predict == "masked":
        yield f"step {step:,} of {steps:,}, {share:.1%} of the tokens masked:"
        marked = label_tokens(words, made.masked_positions, made.masked_labels, shown)
        words = [marked.get(index, word) for index, word in enumerate(words)]
    for low, high in itertools.pairwise(made.cu_seqlens.tolist()):
        yield f"  {join_tokens(words[low:high])}"


def vocabulary(place: str, shard: Shard) -> WordPiece:
    """Return the vocabulary that the shards were made with.

    Raises:
        InputError: it is missing, or is another vocabulary.
    """
    try:
        wordpiece = WordPiece.load(place)
    except InputError as error:
        raise error.but(problem=f"{error.problem}; add --vocab FOLDER to see instances as text") from error
    if wordpiece.sha256 != shard.info.tokenizer:
        raise InputError("is not the vocabulary of these shards; add --vocab FOLDER", path=place)
    return wordpiece


def show(options: argparse.Namespace) -> None:
    """Print the contents of a folder.

    Raises:
        InputError: it is not a folder of shards, or does not match its manifest.
    """
    check(options.samples >= 0, "must be at least 0", "--samples", options.samples)
    check(options.step is None or options.train, "is a step of a training; add --train FOLDER", "--step", options.step)
    if places.is_address(options.folder):
        raise InputError("must be a local folder; copy it here", "DIR", options.folder)
    folder = Path(options.folder)
    manifest = require_manifest(folder, "prepare", "DIR")
    counts = CorpusCounts.of(manifest)
    print(*describe_shards(manifest), "", *balance(counts), "", sep="\n")
    wrong, longest = [], max(map(len, manifest.files), default=0)
    for name, problem in check_files(folder, manifest):
        rows = f"{counts.shards[name].rows:,} instances" if name in counts.shards else ""
        print(f"{name:{longest}} {rows:>22}  {problem or 'checksum ok'}", flush=True)
        wrong += [f"{name}: {problem}"] if problem else []
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; rerun prepare with force=true", path=folder)
    lengths = counts.lengths
    if options.png:
        from pipeline.reporting import plots  # importing matplotlib takes a second

        with writable(options.png, "--png"):
            plots.histogram(lengths, "tokens", "instances").savefig(options.png, format="png", dpi=150)
        print(f"\nlengths -> {options.png}")
    else:
        width = shutil.get_terminal_size().columns
        print("\n   tokens    instances", *bars(lengths, width), sep="\n")
    if options.samples:
        shards = open_folder(folder, options.split)
        wordpiece = vocabulary(options.vocab or manifest.config["vocab"], shards[0])
        lines = samples(shards, options.samples, wordpiece, options.seed)
        if options.train:
            step = 1 if options.step is None else options.step
            lines = replay_step(folder, options.train, step, options.samples, wordpiece)
        print("", *lines, sep="\n")


def main() -> None:
    """Run the command."""
    parser = Arguments(prog="python -m pipeline.inspect", description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="output folder of pipeline.prepare")
    parser.add_argument("--samples", type=int, default=3, help="number of instances to show")
    parser.add_argument("--split", choices=SPLITS, default="train", help="split to sample from")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample and the masks")
    parser.add_argument("--vocab", help="folder of the vocabulary, if it was moved")
    parser.add_argument("--train", metavar="FOLDER", help="training whose instances to show")
    parser.add_argument("--step", type=int, help="step of this training, from 1, which is the default")
    parser.add_argument("--png", metavar="FILE", help="write the histogram of lengths to a file")
    entry_point.run_guarded(lambda: show(parser.parse_args()))


if __name__ == "__main__":
    main()
