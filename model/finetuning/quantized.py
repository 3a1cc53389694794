"""The int8 graph of a folder, as `convert quantize=int8` writes it, run by onnxruntime over many texts.

Activations are scaled by the largest of a batch, so vectors depend a little on the other texts.

Shapes: B texts in a batch, L tokens of the longest, V vocabulary, C outputs, W width of a vector.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.encoders.batch import Batch
from model.finetuning.embeddings import batches
from model.finetuning.features import Samples
from model.huggingface.names import ANSWER
from model.huggingface.onnx_export import HIDDEN, INT8, POOLED
from pipeline.errors import ConfigError

PAIR, OF_ANSWERS = "seq_relationship_logits", ("start_logits", "end_logits")
BATCH_TOKENS = 2048  # of a batch with its padding, which is 2 % of a file of text
POOLINGS = {"cls": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "tokens": lambda x: x}


class QuantizedModel:
    """A folder's int8 graph."""

    def __init__(self, folder: Path | str) -> None:
        """Open the graph.

        Raises:
            ConfigError: the folder has none, or onnxruntime is not installed.
        """
        path = Path(folder, INT8)
        if not path.is_file():
            command = f"python -m pipeline.convert train={folder} quantize=int8 out=FOLDER"
            raise ConfigError(f"{path} not found; write it: {command}", "quantize", "int8")
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise ConfigError(f"{error.name} is not installed; pip install -e '.[onnx]'", "quantize", "int8") from error
        self._graph = onnx.load(path)
        self._settings = onnxruntime.SessionOptions()
        self._settings.intra_op_num_threads = torch.get_num_threads()
        self._inputs = [one.name for one in self._graph.graph.input]
        self.outputs = [one.name for one in self._graph.graph.output]
        self._sessions = dict[tuple[str, ...], Any]()  # by the outputs that they have
        self.judges_pairs = PAIR in self.outputs

    def run(self, samples: Samples, *names: str) -> list[tuple[Any, ...]]:
        """Return outputs of each text, in their order: `(W,)` or `(C,)`, of tokens `(length, ...)`.

        Raises:
            ConfigError: the graph has no such output, or the texts are in chunks.
        """
        if lost := [name for name in names if name not in self.outputs] or ["chunks"] * bool(len(samples.groups)):
            raise ConfigError(f"the graph has no {lost[0]}; leave out quantize", "quantize", "int8")
        session, lengths, outputs = self._session(names), samples.lengths(), [()] * len(samples)
        for rows in batches(lengths, BATCH_TOKENS):
            places = np.arange(lengths[rows].max())
            mask = (places < lengths[rows, None]).astype(np.int64)  # (B, L)
            ids = np.zeros_like(mask)
            ids[mask > 0] = np.concatenate([samples.ids[row] for row in rows])
            types = (places >= samples.second[rows, None]) * mask
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            made = session.run(names, {name: given[name] for name in self._inputs})
            of_tokens = [value.ndim == 3 or name in OF_ANSWERS for name, value in zip(names, made, strict=True)]
            for place, row in enumerate(rows):
                ends = [lengths[row] if each else None for each in of_tokens]
                outputs[row] = tuple(value[place][:end] for value, end in zip(made, ends, strict=True))
        return outputs

    def _session(self, names: tuple[str, ...]) -> Any:
        """Return onnxruntime on the part of the graph that makes these outputs; of the whole it would run all nodes."""
        import onnxruntime
        from onnx.utils import Extractor

        if names not in self._sessions:
            part = Extractor(self._graph).extract_model(self._inputs, list(names)).SerializeToString()
            self._sessions[names] = onnxruntime.InferenceSession(
                part, self._settings, providers=["CPUExecutionProvider"]
            )
        return self._sessions[names]

    def vectors(self, samples: Samples, pooling: str | None) -> list[Any]:
        """Return a vector of each text `(W,)`, or of its tokens `(length, W)`; None: by the folder's modules."""
        if pooling is None:
            return [vector for (vector,) in self.run(samples, POOLED)]
        return [POOLINGS[pooling](states) for (states,) in self.run(samples, HIDDEN)]

    def logits(self, samples: Samples, kind: str) -> list[Any]:
        """Return the logits of a fine-tuned model, as `loop.predict` does."""
        if kind == ANSWER:
            return [np.stack(both, -1) for both in self.run(samples, *OF_ANSWERS)]
        return [logits for (logits,) in self.run(samples, "logits")]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the logits of the masks of one text `(M, V)`, and of a pair `(1, 2)`, as `PretrainingModel` does."""
        samples = Samples([batch.input_ids.numpy()], (batch.segment_ids == 0).sum()[None].numpy(), np.zeros(1))
        places, pair = batch.masked_positions, [PAIR] * self.judges_pairs
        outputs = self.run(samples, *["logits"] * bool(len(places)), *pair)[0]
        masks = torch.from_numpy(outputs[0])[places] if len(places) else torch.zeros(0)
        return masks, torch.from_numpy(outputs[-1])[None] if pair else None
