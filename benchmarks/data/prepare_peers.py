"""Peers of `pipeline.prepare` in `benchmarks.data.prepare`; each runs in its own process.

`datasets`: sentence pairs with Hugging Face's datasets and tokenizers: two batched maps with the
published algorithm in plain Python, and the same sentence splitter as ours.
`tokenizers`: only the library's ids of all sentences, without pairs or output.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sentencex import segment
from tokenizers import Tokenizer

LENGTH = 128
SHORT = 0.1
BATCH = 1000


def sentences(text: str) -> list[str]:
    return [part for line in text.split("\n") for part in map(str.strip, segment("en", line)) if part]


def tokenize(tokenizer: Tokenizer, texts: list[str]) -> list[list[list[int]]]:
    parts = [sentences(text) for text in texts]
    encoded = tokenizer.encode_batch_fast(
        [sentence for document in parts for sentence in document], add_special_tokens=False
    )
    ids = iter(one.ids for one in encoded)
    return [[next(ids) for _ in document] for document in parts]


def pairs(documents: list[list[list[int]]], draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield pairs as Devlin et al.'s create_instances_from_document, without masks."""
    documents = [found for document in documents if (found := [s for s in document if s])]
    most = LENGTH - 3
    for number, document in enumerate(documents):
        target = draw.randint(2, most) if draw.random() < SHORT else most
        chunk: list[list[int]] = []
        size, here = 0, 0
        while here < len(document):
            chunk.append(document[here])
            size += len(document[here])
            if here == len(document) - 1 or size >= target:
                a_end = draw.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [token for sentence in chunk[:a_end] for token in sentence]
                b: list[int] = []
                is_random = len(documents) > 1 and (len(chunk) == 1 or draw.random() < 0.5)
                if is_random:
                    other = draw.randrange(len(documents) - 1)
                    other += other >= number
                    for sentence in documents[other][draw.randrange(len(documents[other])) :]:
                        b += sentence
                        if len(b) >= target - len(a):
                            break
                    here -= len(chunk) - a_end
                else:
                    b = [token for sentence in chunk[a_end:] for token in sentence]
                while len(a) + len(b) > most:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if draw.random() < 0.5 else -1)
                if b:
                    yield {"input_ids": a + b, "a_len": len(a), "is_random_next": is_random}
                chunk, size = [], 0
            here += 1


def with_datasets(text: str, tokenizer: Tokenizer) -> None:
    import datasets

    draw = random.Random(0)

    def make_pairs(batch: dict[str, Any]) -> dict[str, Any]:
        rows = list(pairs(batch["documents"], draw))
        return {key: [row[key] for row in rows] for key in ("input_ids", "a_len", "is_random_next")}

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        data = datasets.load_dataset("json", data_files=text, split="train", cache_dir=folder)
        tokenized = data.map(
            lambda batch: {"documents": tokenize(tokenizer, batch["text"])},
            batched=True,
            batch_size=BATCH,
            remove_columns=data.column_names,
        )
        made = tokenized.map(make_pairs, batched=True, batch_size=BATCH, remove_columns=["documents"])
        made.shuffle(seed=0).save_to_disk(Path(folder, "out"))
        print(len(made))


def with_tokenizers(text: str, tokenizer: Tokenizer) -> None:
    texts, count = [], 0
    with open(text, encoding="utf-8") as lines:
        for line in lines:
            texts.append(json.loads(line)["text"])
            if len(texts) == BATCH:
                count += sum(len(s) for d in tokenize(tokenizer, texts) for s in d)
                texts = []
    count += sum(len(s) for d in tokenize(tokenizer, texts) for s in d)
    print(count)


if __name__ == "__main__":
    peer = {"datasets": with_datasets, "tokenizers": with_tokenizers}[sys.argv[1]]
    peer(sys.argv[2], Tokenizer.from_file(sys.argv[3]))
