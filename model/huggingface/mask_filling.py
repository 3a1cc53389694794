"""What a pre-trained model fills in for [MASK], and whether it is able to.

Shapes: L tokens of a sequence, V vocabulary.
"""

import itertools
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
WORDS = 16  # tokens of the beginning of a text
SHORTEST, LONGEST = 9, 40  # tokens of a sentence
SHORT = 3  # letters of a word that says little
ROWS = 20  # of shards that are looked at for an example
BEGINS, ENDS = "Ġ▁", frozenset(".!?。！？।")  # how the entry of a word, and a sentence, begins and ends
TOP = 3  # words for each mask


def has_head(config: ModelConfig, notes: Sequence[str]) -> bool:
    """Return whether the model has a trained masked-LM head; `notes` say what it lacked."""
    return "masked_head" not in bert_format.initialised_parts(notes) and not config.causal


def examples(folder: Path | str, wordpiece: WordPiece, count: int) -> dict[str, str]:
    """Return held-out sentences with a word masked, and that word.

    They are whole: each follows the end of another. Of texts without such ends they are beginnings. The
    same shards always give the same ones; none if they are gone, or cut within a letter.
    """
    try:
        shard = open_folder(folder, "validation")[0]
    except InputError:
        return {}
    if shard.info.vocab_size != wordpiece.size:
        return {}
    ends = [index for index, entry in enumerate(wordpiece.vocab) if entry.strip(BEGINS) in ENDS]
    letters = {index for index, entry in enumerate(wordpiece.vocab) if entry.strip(BEGINS).isalpha()}  # no quotes
    whole: list[list[int]] = []
    beginnings: list[list[int]] = []
    for row in np.flatnonzero(shard.a_len >= WORDS)[: ROWS * count]:
        ids = shard.ids(shard.offsets[row], shard.offsets[row] + shard.a_len[row])
        stops = np.flatnonzero(np.isin(ids, ends)) + 1
        parts = (ids[first:last].tolist() for first, last in itertools.pairwise(stops))
        whole += [part for part in parts if SHORTEST <= len(part) <= LONGEST and part[0] in letters]
        beginnings.append(ids[:WORDS].tolist())
    places = [_word_in([wordpiece.vocab[index] for index in part], wordpiece) for part in whole]
    candidates = [(part, place) for part, place in zip(whole, places, strict=True) if place is not None]
    answers: dict[str, str] = {}
    for chosen, place in candidates[:count] or [(part, WORDS // 2) for part in beginnings[:count]]:
        answer = wordpiece.library.decode([chosen[place]]).strip()
        chosen[place] = wordpiece.mask
        text = wordpiece.library.decode(chosen, skip_special_tokens=False)
        if "\ufffd" not in text + answer:
            answers[text.replace(wordpiece.vocab[wordpiece.mask], MASK)] = answer
    return answers


def _word_in(entries: Sequence[str], wordpiece: WordPiece) -> int | None:
    """Return the place of a word of one token, the nearest to the middle; None if there is none."""
    words, pieces_marked = [], wordpiece.is_wordpiece
    for place, (entry, after) in enumerate(itertools.pairwise(entries)):
        begins = pieces_marked or entry[0] in BEGINS
        ends = not after.startswith("##") if pieces_marked else after[0] in BEGINS or not after[0].isalpha()
        if begins and ends and len(entry) > SHORT and entry.strip(BEGINS).isalpha():
            words.append(place)
    middle = len(entries) // 2
    return min(words, key=lambda place: abs(place - middle), default=None)


def fill(config: ModelConfig, state: Weights, wordpiece: WordPiece, texts: Sequence[str], longest: int) -> list[Json]:
    """Return for each text its likeliest words with probabilities, mask by mask.

    Texts without a mask, or with more than `longest` tokens, are left out.
    """
    model = model_with(config, state).float()
    filled = []
    for text in texts:
        ids = np.array([wordpiece.cls, *pieces(wordpiece, text), wordpiece.sep])
        if MASK not in text or len(ids) > longest:
            continue
        logits, _ = model(batch_of(ids, len(ids), wordpiece.mask))
        masks = [likeliest(wordpiece, row, TOP, digits=4) for row in logits]
        filled.append({"text": text, "masks": masks})
    return filled


def likeliest(wordpiece: WordPiece, logits: Tensor, top: int, digits: int) -> list[Json]:
    """Return the `top` most probable entries by logits `(V,)`, with rounded probabilities."""
    best, entries = logits.softmax(-1).topk(min(top, len(logits))), []
    for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        # Of WordPiece with its "##", of others as text.
        word = wordpiece.vocab[index] if wordpiece.is_wordpiece else wordpiece.library.decode([index]).strip()
        entries.append({"word": word, "probability": round(value, digits)})
    return entries


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
    )
