"""`python -m pipeline.embed`: contextual vectors of lines of text, as Arrow or .npy.

An .npy file is one array `(N, W)`. An .arrow file (IPC) has one row per line: `text`,
and `vector`, or with pooling=tokens `tokens` and `vectors`.

This file reads lines and writes vectors, and the network is one of its lines, `SentenceEncoder`: a library
has nothing to shorten. sentence-transformers reads the last layer alone and writes no Arrow.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from model.finetuning.features import Samples
from pipeline.cli import entry_point
from pipeline.common.schema import check
from pipeline.config import EmbedConfig
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.errors import writable
from pipeline.evaluation.input_rows import Row, rows_of
from pipeline.evaluation.sentence_encoder import SentenceEncoder
from pipeline.stages import stage
from pipeline.storage.atomic import atomic_path
from pipeline.tokenization.wordpiece import WordPiece

Blocks = Iterator[tuple[list[Row], Samples, list[np.ndarray]]]  # rows, samples, vectors
BLOCK = 4096  # lines in memory at a time


def embed(config: EmbedConfig) -> None:
    """Write the vectors of a file's lines.

    Raises:
        ConfigError: the model has no such layer, or fewer positions.
        InputError: a model or text is missing, or the place cannot be written.
    """
    encoder = SentenceEncoder(config)
    rows = list(rows_of(config))
    known = encoder.own.prompts if encoder.own else {}
    fault = f"no prompt of the model; it has {', '.join(known) or 'none'}"
    check(config.prompt is None or config.prompt in known, fault, "prompt", config.prompt)

    def blocks() -> Blocks:
        with Bar("embed", len(rows), "rows") as bar:
            for start in range(0, len(rows), BLOCK):
                part = rows[start : start + BLOCK]
                samples = encoder.samples([row.text for row in part], config.prompt or "")
                yield part, samples, encoder.vectors(samples)
                bar.update(len(part))

    out = stage.output_place(config.out)
    with new_file(out) as path:
        if out.suffix == ".npy":
            write_npy(path, blocks(), (len(rows), encoder.width), config.dtype)
        else:
            about = list(rows[0].about)
            tokens = config.pooling == "tokens"
            write_arrow(path, blocks(), tokens, (config.dtype, encoder.width), encoder.wordpiece, about)
    said = f"{pluralize(len(rows), 'row')}, vectors of {encoder.width}; {encoder.wordpiece.coverage.line}"
    print(f"embed: {said} -> {out}", flush=True)


@contextlib.contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """Yield a file that gets the name `out` when the body has written it, and goes if that fails.

    Raises:
        InputError: nothing can be written there, or the disk is full.
    """
    with contextlib.ExitStack() as stack:
        with writable(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            path = stack.enter_context(atomic_path(out))
            path.touch()
        stack.enter_context(stage.convert_disk_errors(out))
        yield path


def write_npy(path: Path, blocks: Blocks, shape: tuple[int, int], dtype: str) -> None:
    """Write an .npy file, row by row into mapped memory."""
    array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    place = 0
    for _, _, vectors in blocks:
        array[place : place + len(vectors)] = np.stack(vectors)
        place += len(vectors)
    array.flush()


def write_arrow(
    path: Path, blocks: Blocks, tokens: bool, form: tuple[str, int], wordpiece: WordPiece, about: list[str]
) -> None:
    """Write an Arrow IPC file, a record batch a block, with what else is known `about` rows; `form`: type and width."""
    dtype, width = form
    vector = pa.list_(pa.from_numpy_dtype(dtype), width)
    fields = [(name, pa.string()) for name in (*about, "text")]
    fields += [("tokens", pa.list_(pa.string())), ("vectors", pa.list_(vector))] if tokens else [("vector", vector)]
    schema = pa.schema(fields)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for part, samples, vectors in blocks:
            flat = pa.array(np.concatenate([part.reshape(-1) for part in vectors]).astype(dtype))
            rows = pa.FixedSizeListArray.from_arrays(flat, width)
            columns = [pa.array([row.about[name] for row in part]) for name in about]
            columns.append(pa.array([row.text for row in part]))
            if tokens:
                ends = np.cumsum([0, *map(len, vectors)]).astype(np.int32)
                columns.append(pa.array([[wordpiece.vocab[n] for n in ids] for ids in samples.ids]))
                columns.append(pa.ListArray.from_arrays(pa.array(ends), rows))
            else:
                columns.append(rows)
            writer.write_batch(pa.record_batch(columns, schema=schema))


def main() -> None:
    """Run the command."""
    entry_point.run("embed", EmbedConfig, embed)


if __name__ == "__main__":
    main()
