"""Log-likelihoods of sentences: pseudo-log-likelihoods of masked models, exact ones of causal ones.

The pseudo-log-likelihood of a sentence (Salazar et al. 2020) is the sum of the log-probabilities of
its tokens, each predicted from a copy of the sentence in which it is masked. Where a word has
several tokens, the later ones give an earlier one away: `word_l2r` masks them too (Kauf and Ivanova
2023).

What makes it quick, without changing what is computed: copies of one length are one batch without
padding; equal copies, as the two sentences of a minimal pair have them where they differ in the
masked token alone, are computed once; only masked positions are read; and logits are summed up
while they are in a core's cache.

Shapes: S sentences, L tokens of each in a batch, C copies, P predictions, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.encoders.batch import Packed
from model.encoders.device import fp32_matmul
from model.encoders.encoder import MaskedHead, PretrainingModel
from model.finetuning.features import Ids
from model.loader.device_copy import send
from pipeline.common.counter_rng import Bools, Floats, Ints

BATCH_TOKENS = 4096  # of one forward pass: its matrices stay in a core's cache
GPU_TOKENS = 1 << 17
# Logits that are made at once, predictions and entries: 1 MiB on a CPU, in a core's cache.
HEAD_PIECE = (256, 1024)
GPU_PIECE = (1 << 13, 1 << 16)


@dataclass(frozen=True)
class Queries:
    """Predictions to make in sequences of one length; copies are sequences as the model reads them.

    Equal copies are there once; the predictions are in the order of their copies.
    """

    copies: Ids  # (C, L)
    copy: Ints  # (P,) which copy a prediction is read from, rising
    place: Ints  # (P,) and at which position
    label: Ints  # (P,) the token whose log-probability is wanted
    sentence: Ints  # (P,) which sentence it belongs to


class SentenceScorer:
    """Scores sentences with one model."""

    def __init__(self, model: PretrainingModel, mask: int, device: torch.device):
        self._model = model.to(device).eval()
        self._mask, self._device = None if model.config.causal else mask, device
        cpu = device.type == "cpu"
        self._tokens = BATCH_TOKENS if cpu else GPU_TOKENS
        self._piece = HEAD_PIECE if cpu else GPU_PIECE

    @torch.no_grad()
    @fp32_matmul()
    def scores(
        self,
        sequences: Sequence[Ids],
        first: Ints,
        goes_on: Sequence[Bools] | None = None,
        on_sentences: Callable[[float], object] = lambda count: None,
    ) -> Floats:
        """Return the log-likelihood `(S,)` of each sequence from [CLS] to [SEP].

        The tokens from position `first` `(S,)` on count, [SEP] does not. With `goes_on`, whether
        the tokens of each sequence continue a word, the later tokens of a word are masked with an
        earlier one; a causal model, which does not read them, ignores it. Products are those of
        fp32 on a GPU too: errors of TF32 add up over the tokens and decide close pairs.
        """
        scores = np.zeros(len(sequences))
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            ids = np.stack([sequences[row] for row in rows.tolist()])
            marks = None if goes_on is None else np.stack([goes_on[row] for row in rows.tolist()])
            queries = queries_of(ids, first[rows], self._mask, marks)
            values = self._values(queries, len(rows), on_sentences)
            scores[rows] = np.bincount(queries.sentence, values, len(rows))
        return scores

    def _values(self, queries: Queries, sentences: int, on_sentences: Callable[[float], object]) -> Floats:
        """Return the log-probability `(P,)` of each label; report shares of the sentences as they are done."""
        values = np.zeros(len(queries.label))
        copies, length = queries.copies.shape
        size = max(1, self._tokens // length)
        for start in range(0, copies, size):
            stop = min(start + size, copies)
            low, high = np.searchsorted(queries.copy, (start, stop))
            place = (queries.copy[low:high] - start) * length + queries.place[low:high]
            keep, row = np.unique(place, return_inverse=True)
            states = self._states(queries.copies[start:stop], keep)
            values[low:high] = self._log_probabilities(states, row, queries.label[low:high])
            on_sentences((stop - start) / copies * sentences)
        return values

    def _states(self, copies: Ids, keep: Ints) -> Tensor:
        """Return hidden states `(K, H)` at positions `keep` `(K,)` of packed copies `(C, L)`."""
        encoder, device = self._model.encoder, self._device
        count, length = copies.shape
        ids = send(copies.reshape(-1).astype(np.int64), device)
        positions = torch.arange(length, device=device).repeat(count)
        starts = torch.arange(0, len(ids) + 1, length, dtype=torch.int32, device=device)
        batch = Packed(ids, torch.zeros_like(ids), positions, starts, length)
        return encoder(batch, send(keep, device))  # type: ignore[no-any-return]

    def _log_probabilities(self, states: Tensor, row: Ints, label: Ints) -> Floats:
        """Return the log-probability `(P,)` of labels `(P,)` at rows `(P,)` of `(K, H)`."""
        head = self._model.masked_head
        assert isinstance(head, MaskedHead)
        words, bias = self._model.encoder.embeddings.word.weight, head.bias
        hidden = head.hidden(states)
        at, labels = send(row, hidden.device), send(label, hidden.device)
        wanted = (hidden[at] * words[labels]).sum(-1) + bias[labels]
        rows, columns = self._piece
        every = [log_sum_exp(part, words, bias, columns) for part in torch.split(hidden, rows)]
        return np.asarray((wanted - torch.cat(every)[at]).double().cpu().numpy())


def log_sum_exp(hidden: Tensor, words: Tensor, bias: Tensor, columns: int) -> Tensor:
    """Return log-sum-exp over the logits of each row, `(M, H)` and `(V, H)` -> `(M,)`.

    Only the logits of `columns` entries are there at a time.
    """
    greatest = hidden.new_full((len(hidden), 1), -torch.inf)
    total = torch.zeros_like(greatest)
    for start in range(0, len(words), columns):
        stop = start + columns
        logits = torch.addmm(bias[start:stop], hidden, words[start:stop].t())
        before, greatest = greatest, torch.maximum(greatest, logits.amax(-1, keepdim=True))
        total = total * (before - greatest).exp_()
        total += logits.sub_(greatest).exp_().sum(-1, keepdim=True)
    return (total.log_() + greatest).squeeze(-1)


def queries_of(ids: Ids, first: Ints, mask: int | None, goes_on: Bools | None) -> Queries:
    """Return a masked copy of sentences `(S, L)` for each token from position `first` `(S,)`.

    Without a `mask`, a token is read from the one before it, in the sentence as it is. With `goes_on` `(S, L)`,
    whether each token continues the word of the one before it, the later tokens of its word are masked too.
    """
    length = ids.shape[1]
    each = np.arange(length)
    sentence, place = np.nonzero((each >= first[:, None]) & (each < length - 1))
    label = ids[sentence, place].astype(np.int64)
    if mask is None:
        return Queries(ids, sentence, place - 1, label, sentence)
    copies = ids.astype(np.int32)[sentence]  # (P, L)
    if goes_on is None:
        copies[np.arange(len(copies)), place] = mask
    else:
        begins = np.where(goes_on, length, each)  # (S, L) where a word begins
        following = np.minimum.accumulate(begins[:, ::-1], 1)[:, ::-1]  # the next that begins
        end = following[sentence, place + 1]
        copies[(each >= place[:, None]) & (each < end[:, None])] = mask
    rows = copies.view(np.dtype((np.void, 4 * length))).ravel()
    _, index, copy = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(copy, kind="stable")
    distinct = copies[index].astype(np.int64)
    return Queries(distinct, copy[order], place[order], label[order], sentence[order])
