"""What a pre-trained model fills in for [MASK], and whether it is able to.

Shapes: L tokens of a sequence, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.config import Json, ModelConfig, Weights
from model.encoders.architectures import model_with
from model.encoders.batch import Batch
from model.huggingface import bert_format
from pipeline.errors import InputError
from pipeline.shards import open_folder
from pipeline.tokenization.wordpiece import WordPiece

MASK = "[MASK]"
WORDS = 16  # tokens of an example
TOP = 3  # words for each mask


def has_head(config: ModelConfig, notes: Sequence[str]) -> bool:
    """Return whether the model has a trained masked-LM head; `notes` say what it lacked."""
    return "masked_head" not in bert_format.initialised_parts(notes) and not config.causal


def examples(folder: Path | str, wordpiece: WordPiece, count: int) -> list[str]:
    """Return the beginnings of the first held-out texts, their middle token masked.

    The same shards always give the same ones; none if they are gone, or cut within a letter.
    """
    try:
        shard = open_folder(folder, "validation")[0]
    except InputError:
        return []
    if shard.info.vocab_size != wordpiece.size:
        return []
    rows = np.flatnonzero(shard.a_len >= WORDS)[: 10 * count]
    found = []
    for start in shard.offsets[rows].tolist():
        ids = shard.ids(start, start + WORDS).tolist()
        ids[WORDS // 2] = wordpiece.mask
        found.append(wordpiece.library.decode(ids, skip_special_tokens=False))
    return [text.replace(wordpiece.vocab[wordpiece.mask], MASK) for text in found if "\ufffd" not in text][:count]


def fill(config: ModelConfig, state: Weights, wordpiece: WordPiece, texts: Sequence[str], longest: int) -> list[Json]:
    """Return for each text its likeliest words with probabilities, mask by mask.

    Texts without a mask, or with more than `longest` tokens, are left out.
    """
    model = model_with(config, state).float()
    found = []
    for text in texts:
        ids = np.array([wordpiece.cls, *pieces(wordpiece, text), wordpiece.sep])
        if MASK not in text or len(ids) > longest:
            continue
        logits, _ = model(batch_of(ids, len(ids), wordpiece.mask))
        masks = [likeliest(wordpiece, row, TOP, digits=4) for row in logits]
        found.append({"text": text, "masks": masks})
    return found


def likeliest(wordpiece: WordPiece, logits: Tensor, top: int, digits: int) -> list[Json]:
    """Return the `top` most probable entries by logits `(V,)`, with rounded probabilities."""
    best, found = logits.softmax(-1).topk(min(top, len(logits))), []
    for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        # Of WordPiece with its "##", of others as text.
        word = wordpiece.vocab[index] if wordpiece.is_wordpiece else wordpiece.library.decode([index]).strip()
        found.append({"word": word, "probability": round(value, digits)})
    return found


def pieces(wordpiece: WordPiece, text: str) -> npt.NDArray[np.int64]:
    """Return the ids of a text in which [MASK] is the mask, with the spaces that it leaves."""
    return wordpiece.encode_masked(text.split(MASK))


def batch_of(ids: npt.NDArray[np.int64], second: int, mask: int) -> Batch:
    """Return a batch of one sequence `(L,)` whose second text starts at `second`."""
    tokens, places = torch.from_numpy(ids), torch.arange(len(ids))
    return Batch(
        input_ids=tokens,
        segment_ids=(places >= second).long(),
        position_ids=places,
        cu_seqlens=torch.tensor([0, len(ids)], dtype=torch.int32),
        max_length=len(ids),
        masked_positions=(tokens == mask).nonzero().flatten(),
        masked_labels=torch.zeros(0, dtype=torch.long),
        next_sentence_labels=torch.zeros(1, dtype=torch.long),
    )
