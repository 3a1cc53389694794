"""Documents -> tables of token ids, with the MinHash signatures of those that are compared."""

import itertools

import numpy as np
import pyarrow as pa

from pipeline.filtering.minhash import MinHasher
from pipeline.preparation import timings
from pipeline.preparation.dedup import MOST_HASHES
from pipeline.preparation.documents import DocumentCounts, Kept
from pipeline.preparation.dropped import as_bytes
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shuffle import nested
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.pretokenize import Ids, Lengths
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece


class TokenizedDocuments:
    """The tokenized documents of a reading task, and how many had no token."""

    def __init__(self, plan: PreparePlan, account: DocumentCounts):
        self.plan, self.account = plan, account
        self.coverage = Coverage()
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.signed: set[bytes] = set()  # hashes of documents
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: Kept) -> pa.Table:
        """Tokenize a chunk of documents; those without a token count as empty."""
        with timings.on("tokenize"):
            ids, lengths = self.tokens_of(wordpiece, chunk)
        counts = np.array([len(each.sentences) for each in chunk], np.int64)
        owner = np.repeat(np.arange(len(chunk)), counts)[lengths > 0]
        lengths = lengths[lengths > 0]
        self.account.totals["tokens_read"] += len(ids)
        sentence_counts = np.bincount(owner, minlength=len(chunk))
        kept = sentence_counts > 0
        documents = list(itertools.compress(chunk, kept))
        for each in itertools.compress(chunk, ~kept):
            self.account.drop(each.id, "empty")
        with timings.on("near duplicates"):
            signatures = self.signatures(documents)
        return pa.table(
            {
                "hash": pa.array([each.hash for each in documents], pa.binary(16)),
                "copies": pa.array([each.copies for each in documents], pa.uint16()),
                "words": pa.array([each.words for each in documents], pa.int64()),
                "id": pa.array([as_bytes(each.id) for each in documents], pa.binary()),
                "signature": pa.array(signatures, pa.binary()),
                "ids": nested(ids, lengths, sentence_counts[kept]),
            }
        )

    def signatures(self, documents: Kept) -> list[bytes | None]:
        """Return the MinHash signature of each document, but of equal ones only that of the first."""
        if self.signer is None:
            return [None] * len(documents)
        new = {each.hash: each.text for each in documents if each.hash not in self.signed}
        if len(self.signed) < MOST_HASHES:
            self.signed.update(new)
        signed = dict(zip(new, map(bytes, self.signer.sign(list(new.values()))), strict=True)) if new else {}
        return [signed.pop(each.hash, None) for each in documents]

    def tokens_of(self, wordpiece: WordPiece, chunk: Kept) -> tuple[Ids, Lengths]:
        """Return the ids of all sentences as stored in shards, and the token counts."""
        sentences = [sentence for each in chunk for sentence in each.sentences]
        if self.cut is None:
            gaps = [gap for each in chunk for gap in each.gaps] if wordpiece.uncached else []
            return wordpiece.encode_within(sentences, gaps, self.coverage)
        ids, lengths, goes_on = wordpiece.encode_words(sentences, self.cut, self.coverage)
        return self.plan.info.marked(ids, goes_on), lengths
