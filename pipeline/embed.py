"""`python -m pipeline.embed`: contextual vectors of the lines of a text file, as Arrow or .npy.

An .npy file is one array `(N, W)` of float32. An .arrow file (IPC) has a row a line: `text`, and
`vector`, or with pooling=tokens `tokens` and `vectors`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from pipeline import entry
from pipeline.config import EmbedConfig
from pipeline.errors import ConfigError, InputError
from pipeline.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from model.samples import Samples

BLOCK = 4096  # lines that are held at once


def read_lines(path: str) -> list[str]:
    """The lines of a text file; empty ones too, so that rows are line numbers.

    Raises:
        InputError: it cannot be read, or holds nothing.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"input={path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError(f"input={path}: empty")
    return [line.removesuffix("\r") for line in lines]


def embed(config: EmbedConfig) -> None:
    """Write the file, beside its name first."""
    from model.embed import Embedder

    embedder = Embedder(config.pretrained, config.layers, config.mix, config.pooling)
    longest = config.sequence_length or embedder.size.positions
    if longest > embedder.size.positions:
        raise ConfigError(
            f"sequence_length={longest}: the model has {embedder.size.positions} positions"
        )
    lines = read_lines(config.input)
    wordpiece = WordPiece.load(config.pretrained)
    out = Path(config.out)
    beside = out.with_name(f".{out.name}.tmp")

    def blocks() -> "Iterator[tuple[list[str], Samples, list[np.ndarray]]]":
        from model.samples import Framing, tokenize

        framing = Framing(longest, config.truncation)
        with tqdm(total=len(lines), unit="line", disable=None) as bar:
            for start in range(0, len(lines), BLOCK):
                texts = lines[start : start + BLOCK]
                samples = tokenize(wordpiece, texts, None, [0.0] * len(texts), framing)
                yield texts, samples, embedder.vectors(samples)
                bar.update(len(texts))

    if out.suffix == ".npy":
        shape = (len(lines), embedder.width)
        array = np.lib.format.open_memmap(beside, "w+", np.float32, shape)
        place = 0
        for _, _, vectors in blocks():
            array[place : place + len(vectors)] = np.stack(vectors)
            place += len(vectors)
        array.flush()
    else:
        write_arrow(beside, blocks(), config.pooling == "tokens", embedder.width, wordpiece)
    os.replace(beside, out)
    print(f"embed: {len(lines):,} lines, vectors of {embedder.width} -> {out}", flush=True)


def write_arrow(
    path: Path, blocks: "Iterator[tuple[list[str], Samples, list[np.ndarray]]]", tokens: bool,
    width: int, wordpiece: WordPiece,
) -> None:  # fmt: skip
    """Write an Arrow IPC file, a record batch a block."""
    vector = pa.list_(pa.float32(), width)
    fields = [("text", pa.string())]
    fields += [("tokens", pa.list_(pa.string())), ("vectors", pa.list_(vector))] if tokens else [
        ("vector", vector)
    ]  # fmt: skip
    schema = pa.schema(fields)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for texts, samples, vectors in blocks:
            flat = pa.array(np.concatenate([part.reshape(-1) for part in vectors]))
            rows = pa.FixedSizeListArray.from_arrays(flat, width)
            columns: list[pa.Array] = [pa.array(texts)]
            if tokens:
                ends = np.cumsum([0, *map(len, vectors)]).astype(np.int32)
                columns.append(pa.array([[wordpiece.vocab[n] for n in ids] for ids in samples.ids]))
                columns.append(pa.ListArray.from_arrays(pa.array(ends), rows))
            else:
                columns.append(rows)
            writer.write_batch(pa.record_batch(columns, schema=schema))


def main() -> None:
    """The command."""
    entry.run("embed", EmbedConfig, embed)


if __name__ == "__main__":
    main()
