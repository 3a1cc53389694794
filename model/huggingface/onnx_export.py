"""ONNX export of a Hugging Face folder, in fp32 and int8, in the layout of optimum and transformers.js.

Inputs are those of the folder's tokenizer, each `(B, L)` int64 with dynamic sizes. A pre-trained model
has the outputs `last_hidden_state` `(B, L, H)`, `sentence_embedding` `(B, H)` if the folder pools, and
`logits` `(B, L, V)` and `seq_relationship_logits` `(B, 2)` of the heads that were trained; a fine-tuned
one those of its task: `logits`, or `start_logits` and `end_logits`.
"""

import contextlib
import importlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.config import Json
from model.huggingface import bert_format, model_card, sentence_model, vocabulary
from model.huggingface.names import ANSWER, CHOICE, NAMES
from pipeline.common import counter_rng
from pipeline.errors import ConfigError, InputError
from pipeline.storage import strict_json

FOLDER, MODEL, INT8 = "onnx", "onnx/model.onnx", "onnx/model_quantized.onnx"
HIDDEN, POOLED = "last_hidden_state", "sentence_embedding"
# By transformers' name of an output: ours of the part that it is of, if it is pre-trained, and the graph's.
HEADS = {
    "logits": ("masked_head", "logits"),
    "prediction_logits": ("masked_head", "logits"),
    "seq_relationship_logits": ("next_sentence", "seq_relationship_logits"),
    "start_logits": ("", "start_logits"),
    "end_logits": ("", "end_logits"),
}
TOLERANCE = 1e-4  # per logit; both compute in single precision
LARGEST = 2**31 - 2**24  # bytes of one protobuf file, with room for the graph
LEAST_COSINE, MOST_LOST = 0.99, 0.01  # of int8 to fp32
TEXTS, MASKED_TEXTS, LONGEST = 64, 256, 128  # texts for vectors and for masks; tokens of each
MASKED, MASK_SHARE = "masked words", 0.15

Sample = tuple[Any, int]  # ids of a sequence `(length,)`, and where its second text begins
Outputs = dict[str, Any]


@dataclass(frozen=True)
class Texts:
    """What int8 is compared on."""

    about: str
    samples: Sequence[Sample]
    metric: str | None = None  # what is compared besides vectors: of a task, or MASKED
    mask: int = 0  # id of the mask
    score: Callable[[list[Any]], float] | None = None  # of a task, by the logits of `samples`


def check_installed(key: str, value: Any) -> None:
    """Raise ConfigError if the libraries of the extra `onnx`, which a key needs, are not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"{name} is not installed; pip install -e '.[onnx]'", key, value) from error


class Served(nn.Module):
    """A model of transformers as a graph needs it: tensors by position in, a tuple of outputs out."""

    def __init__(self, folder: Path, untrained: Collection[str]) -> None:
        """Load a folder whose heads `untrained` have random weights.

        Raises:
            ConfigError: It pools in a way that is not supported.
            InputError: It is of a kind that is not exported.
        """
        import transformers

        super().__init__()
        content = strict_json.read_object(folder / "config.json")
        named, names = content["architectures"][0], NAMES[content["model_type"]]
        self.positions = bert_format.our_config(folder, content).positions
        self.kind = {theirs: kind for kind, theirs in names.tuned.items()}.get(named)
        if self.kind == CHOICE:
            raise InputError(f"{named} is not exported as ONNX, which has no standard form of choices")
        transformers.utils.logging.disable_progress_bar()
        load = getattr(transformers, named).from_pretrained
        self.model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
        given = strict_json.read_object(folder / vocabulary.TOKENIZER_CONFIG)["model_input_names"]
        self.inputs = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in given]
        self.pooling = sentence_model.pooling_of(folder) if self.kind is None else None
        self.after = self.pooling.after if self.pooling else None  # a part of the graph
        given = self.model(**dict(zip(self.inputs, sample(self, 1, 2, 0), strict=True)))
        self.heads = {their: name for their, (ours, name) in HEADS.items() if their in given and ours not in untrained}
        self.outputs = [HIDDEN, *([POOLED] if self.pooling else []), *self.heads.values()]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return `outputs` of `inputs`, each `(B, L)`."""
        named = dict(zip(self.inputs, inputs, strict=True))
        outputs = self.model(**named, output_hidden_states=True)
        hidden = outputs.hidden_states[-1]
        pooled = [pooled_by(self.pooling, hidden, named["attention_mask"])] if self.pooling else []
        return (hidden, *pooled, *(outputs[name] for name in self.heads))


def pooled_by(pooling: sentence_model.Pooling, hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the vectors `(B, W)` that sentence-transformers makes of hidden states `(B, L, H)`."""
    real = mask[:, :, None].to(hidden.dtype)
    if pooling.kind == "cls":
        vectors = hidden[:, 0]
    elif pooling.kind == "max":
        vectors = hidden.masked_fill(real == 0, -1e9).amax(1)
    else:
        vectors = (hidden * real).sum(1) / real.sum(1).clamp(min=1e-9)
    return pooling.after(vectors)  # type: ignore[no-any-return]


def sample(model: Served, rows: int, longest: int, seed: int) -> list[Tensor]:
    """Return random padded inputs; the first row has full length."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(model.model.config.vocab_size, (rows, longest), generator=draw)
    lengths = torch.linspace(longest, 2, rows).long()
    positions = torch.arange(longest)
    mask = (positions < lengths[:, None]).long()
    return [ids, mask, (positions >= lengths[:, None] // 2).long() * mask][: len(model.inputs)]


def write(folder: Path, untrained: Collection[str], texts: Texts | None) -> Json:
    """Write the graph of a folder, and with `texts` its int8 form; return the figures of both.

    Compares on inputs of other shapes than traced, to detect sizes exported as constants.

    Raises:
        ConfigError, InputError: The folder is of a kind that is not exported, or int8 changes too much.
        RuntimeError: The outputs of onnxruntime and PyTorch differ.
    """
    import onnx

    model = Served(folder, untrained)
    if sum(one.nbytes for one in model.state_dict().values()) > LARGEST:
        raise InputError("is too large for a file of ONNX, 2 GiB; convert without onnx and quantize")
    (folder / FOLDER).mkdir(exist_ok=True)
    onnx.save(graph_of(model), folder / MODEL)
    difference = max(
        compare(folder / MODEL, model, sample(model, rows, min(longest, model.positions), seed=rows))
        for rows, longest in ((1, 2), (3, 512))
    )
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"wrong ONNX export: outputs differ from PyTorch by {difference:.1e}, more than {TOLERANCE:.0e}"
        )
    figures: Json = {"largest_onnx_difference": difference}
    figures |= {"int8": quantized(folder, model, texts)} if texts else {}
    for path in (folder / MODEL, folder / INT8):
        if model.kind and path.exists():  # what is read of a fine-tuned model is its task's
            graph = onnx.load(path)
            del graph.graph.output[0]
            onnx.save(graph, path)
    return figures


def graph_of(model: Served) -> Any:
    """Return the graph (onnx.ModelProto) without notes of the exporter, as paths of this machine."""
    batch, limit = torch.export.Dim("batch"), model.positions
    length = torch.export.Dim("length", min=2, max=limit)
    with quiet():
        program = torch.onnx.export(
            model,
            tuple(sample(model, 2, min(8, limit), seed=0)),
            input_names=model.inputs,
            output_names=model.outputs,
            dynamo=True,
            dynamic_shapes=(tuple({0: batch, 1: length} for _ in model.inputs),),
        )
    assert program is not None
    return bare(program.model_proto)


def bare(made: Any) -> Any:
    """Return a graph without shapes of what is in between, at which quantizers stop, and without remarks."""
    del made.graph.value_info[:]
    for part in (made, made.graph, *made.graph.node, *made.graph.input, *made.graph.output, *made.graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    return made


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what the exporter and the quantizer say; what they do is checked."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def compare(path: Path, model: Served, inputs: list[Tensor]) -> float:
    """Return the largest difference of an output at real tokens, onnxruntime against PyTorch."""
    outputs = Session(path).run(dict(zip(model.inputs, inputs, strict=True)))
    with torch.no_grad():
        expected = dict(zip(model.outputs, model(*inputs), strict=True))
    real = inputs[1].bool()  # (B, L)
    mean, deviation = bert_format.scale_of(model.model.config.to_dict())
    units = {name: abs(mean) + deviation if name == "logits" else 1.0 for name in outputs}
    apart = {name: (torch.from_numpy(outputs[name]) - expected[name]).abs() / units[name] for name in outputs}
    return max(float((one[real] if one.shape[:2] == real.shape else one).max()) for one in apart.values())


class Session:
    """A graph in onnxruntime."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self._inputs = [one.name for one in self._session.get_inputs()]

    def run(self, inputs: dict[str, Tensor]) -> Outputs:
        """Return all outputs by name."""
        values = {name: inputs[name].numpy() for name in self._inputs}
        names = [one.name for one in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, values), strict=True))

    def of(self, one: Sample) -> Outputs:
        """Return the outputs of one sequence, without the batch."""
        ids, second = torch.from_numpy(np.asarray(one[0], np.int64))[None], one[1]
        types = (torch.arange(ids.shape[1]) >= second).long()[None]
        made = self.run({"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": types})
        return {name: value[0] for name, value in made.items()}


def quantized(folder: Path, model: Served, texts: Texts) -> Json:
    """Write the int8 form of a graph, and return how near it is to the fp32 one, text by text.

    Weights are unsigned: signed ones saturate on processors without VNNI.

    Raises:
        InputError: It is too far.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet():
        quantize_dynamic(folder / MODEL, folder / INT8, weight_type=QuantType.QUInt8)
    onnx.save(bare(onnx.load(folder / INT8)), folder / INT8)
    both = Session(folder / MODEL), Session(folder / INT8)
    cosines = [cosine(*(session.of(one) for session in both)) for one in texts.samples[:TEXTS]]
    figures: Json = {"texts": f"{len(cosines)} {texts.about}", "least_cosine": min(cosines)}
    if texts.metric is not None and (texts.score or "logits" in model.outputs):
        fp32, int8 = (scored(session, model.kind, texts) for session in both)
        figures |= {"metric": texts.metric, "fp32": fp32, "int8": int8}
    lost = figures.get("fp32", 0.0) - figures.get("int8", 0.0)
    if not (min(cosines) >= LEAST_COSINE and lost <= MOST_LOST):  # nor NaN
        raise InputError(f"int8 changes too much: {model_card.nearness(figures)}; use fp32, without quantize")
    return figures


def scored(session: Session, kind: str | None, texts: Texts) -> float:
    """Return the score of a task, or the share of masked words that a graph finds."""
    if texts.score is not None:
        answers = [session.of(one) for one in texts.samples]
        if kind == ANSWER:
            return texts.score([np.stack((one["start_logits"], one["end_logits"]), -1) for one in answers])
        return texts.score([one["logits"] for one in answers])
    right = []
    for number, (ids, second) in enumerate(texts.samples[:MASKED_TEXTS]):
        words = np.r_[1 : second - 1, second : len(ids) - 1]  # without [CLS] and [SEP]
        order = counter_rng.permutation(counter_rng.key(0, "int8", number), len(words))
        places = words[order[: math.ceil(MASK_SHARE * len(words))]]
        hidden = ids.copy()
        hidden[places] = texts.mask
        right.append(session.of((hidden, second))["logits"][places].argmax(-1) == ids[places])
    return float(np.concatenate(right).mean())


def cosine(*outputs: Outputs) -> float:
    """Return the cosine of two vectors of a text: as the folder pools, or else the mean of its tokens."""
    one, other = (each[POOLED] if POOLED in each else each[HIDDEN].mean(0) for each in outputs)
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
