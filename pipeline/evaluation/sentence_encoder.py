"""Vectors of texts as sentence-transformers makes them: the modules and prompts of a model's folder, else the mean."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.finetuning.features import Samples, TruncationConfig, tokenize
from model.huggingface import sentence_model
from pipeline.config import EmbedConfig
from pipeline.evaluation.input_rows import longest_of
from pipeline.tokenization.wordpiece import WordPiece

Vectors = npt.NDArray[np.float32]  # (N, W)
Prompts = tuple[str, ...]  # by name


class SentenceEncoder:
    """A model that turns texts into vectors; with a seed, its network with random weights."""

    def __init__(self, config: EmbedConfig, seed: int | None = None):
        """Open the model.

        Raises:
            ConfigError: it has no such layer, fewer positions, no graph that is asked for, or makes vectors in a way
                that is not supported.
            InputError: a file of it is missing or broken.
        """
        import torch

        from model.finetuning.embeddings import Embedder
        from model.finetuning.quantized import QuantizedModel
        from model.huggingface import bert_format

        folder = config.pretrained
        self.own = sentence_model.pooling_of(Path(folder)) if config.pooling is None else None
        self.int8 = QuantizedModel(folder) if config.quantize else None
        kind = self.own.kind if self.own else config.pooling or "mean"
        self.pooling = None if self.own else kind  # None: the folder's modules
        if self.int8:  # the weights are in the graph
            size = bert_format.read_sizes(folder)
            width = size.hidden
        else:
            self.embedder = Embedder(folder, config.layers, config.mix, kind, seed)
            size, width = self.embedder.size, self.embedder.width
        longest = longest_of(config, size.positions, self.own.longest if self.own else None)
        self.wordpiece, self.framing = WordPiece.load(folder), TruncationConfig(longest, config.truncation)
        self.width = self.own.after(torch.zeros(1, width)).shape[1] if self.own else width
        self.similarity = self.own.similarity if self.own else "cosine"

    def samples(self, texts: list[str], *prompts: str) -> Samples:
        """Return the tokens of texts after the first prompt of these names that the model has, else its usual one."""
        if self.own:
            texts = [self.own.prompt(*prompts) + text for text in texts]
            texts = list(map(str.lower, texts)) if self.own.lowercase else texts
        return tokenize(self.wordpiece, texts, None, [0.0] * len(texts), self.framing)

    def vectors(self, samples: Samples) -> list[Vectors]:
        """Return the vector `(W,)` of each text, or those of its tokens `(length, W)`."""
        import torch

        if self.int8:
            return self.int8.vectors(samples, self.pooling)
        vectors = self.embedder.vectors(samples)
        return list(self.own.after(torch.from_numpy(np.stack(vectors))).numpy()) if self.own and vectors else vectors

    def encode(self, texts: list[str], prompts: Prompts) -> Vectors:
        """Return the vectors `(N, W)` of texts, each after the first of these prompts that the model has."""
        return np.stack(self.vectors(self.samples(texts, *prompts)))

    def bag(self, texts: list[str], _prompts: Prompts) -> Vectors:
        """Return the mean of the model's own vectors of the tokens `(N, H)`, without those at both ends; 0 of none."""
        words = self.embedder.words
        every = self.samples(texts).ids
        return np.stack([words[ids[1:-1]].mean(0) if len(ids) > 2 else 0 * words[0] for ids in every])
