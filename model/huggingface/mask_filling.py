"""What a pre-trained model fills in for [MASK]: samples for a person to look at, not a score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.huggingface import bert_format
from model.huggingface.card_example import MASK
from pipeline.tokenization.wordpiece import WordPiece

TOP = 3  # words for each mask


def has_head(config: ModelConfig, notes: Sequence[str]) -> bool:
    """Return whether the model has a trained masked-LM head; `notes` say what it lacked."""
    return "masked_head" not in bert_format.initialised_parts(notes) and not config.causal


@torch.no_grad()
def fill(
    config: ModelConfig, state: Mapping[str, Tensor], wordpiece: WordPiece, texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Return for each text its likeliest words with probabilities, mask by mask.

    Texts without a mask or longer than the model's positions are left out.
    """
    with torch.device("meta"):
        model = build_model(config)
    model.load_state_dict(state, assign=True)
    model.float().eval()
    found = []
    for text in texts:
        ids = _ids(wordpiece, text)
        if MASK not in text or len(ids) > config.positions:
            continue
        shares = model(_batch(ids, wordpiece.mask))[0].softmax(-1)
        masks = [
            [
                {"word": word_of(wordpiece, index), "probability": round(value, 4)}
                for value, index in zip(*(part.tolist() for part in row.topk(TOP)), strict=True)
            ]
            for row in shares
        ]
        found.append({"text": text, "masks": masks})
    return found


def word_of(wordpiece: WordPiece, index: int) -> str:
    """Return an entry as it is shown: of WordPiece with its "##", of others as text."""
    if wordpiece.is_wordpiece:
        return wordpiece.vocab[index]
    return str(wordpiece.library.decode([index])).strip()


def _ids(wordpiece: WordPiece, text: str) -> Tensor:
    """Return the sequence of a text in which [MASK] is the mask."""
    ids, lengths = wordpiece.encode(text.split(MASK))
    parts = np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])
    joined = [np.array([wordpiece.cls])]
    for number, part in enumerate(parts):
        joined += [part] if number == 0 else [np.array([wordpiece.mask]), part]
    return torch.from_numpy(np.concatenate([*joined, np.array([wordpiece.sep])]))


def _batch(ids: Tensor, mask: int) -> Batch:
    return Batch(
        input_ids=ids,
        segment_ids=torch.zeros_like(ids),
        position_ids=torch.arange(len(ids)),
        cu_seqlens=torch.tensor([0, len(ids)], dtype=torch.int32),
        max_length=len(ids),
        masked_positions=(ids == mask).nonzero().flatten(),
        masked_labels=torch.zeros(0, dtype=torch.long),
        next_sentence_labels=torch.zeros(1, dtype=torch.long),
    )
