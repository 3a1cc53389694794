"""Fine-tuned models as Hugging Face folders, for `AutoModelForSequenceClassification` etc."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from model.config import Json, ModelConfig, Weights
from model.finetuning.heads import BertWithHead, HeadConfig
from model.huggingface import bert_format, vocabulary
from model.huggingface.names import ANSWER, CHOICE, CLASS, NAMES, TAG, Names
from pipeline.common.schema import built
from pipeline.errors import InputError
from pipeline.tokenization import tokenizer_folder
from pipeline.tokenization.wordpiece import WordPiece

KINDS = {  # head type by class of transformers
    named: kind for names in NAMES.values() for kind, named in names.tuned.items()
}
TRUNCATIONS, SHORTEST = ("head", "tail", "head_tail"), 8  # tokens of the shortest sequences
ONE_CLASS, SEVERAL = "single_label_classification", "multi_label_classification"  # problem types of transformers
# In config.json; transformers keeps keys that it does not know.
TEXTS, READING, SIGMOID = "texts_per_sample", "fine_tuning", "torch.nn.Sigmoid"
OF_TAIL = {"truncation_side": "left"}  # in tokenizer_config.json, of a model that reads the tail of a long text


@dataclass(frozen=True)
class Reading:
    """The part of a text that a model was tuned on, and its words; the defaults are those of older folders."""

    sequence_length: int | None = None  # None: all positions of the model
    truncation: str = "head"
    stride: int = 128
    starts: str = ""  # punctuation that words keep at their start; other is apart
    ends: str = ""  # that they keep at their end
    divides: str = ""  # that is apart within a word, too
    characters: bool = False  # of scripts without spaces, each is a word


@dataclass(frozen=True)
class SavedModel:
    """A model, the labels of its outputs, and how it reads texts."""

    model: BertWithHead
    labels: list[str]  # empty for scores, choices and answers
    texts: int | None = None  # of a sample: 1, or 2 for pairs; None if the folder does not say
    reading: Reading = Reading()


def save(folder: Path, saved: SavedModel, size: ModelConfig, source: Path) -> None:
    """Write weights, configuration and the vocabulary of `source` into `folder`.

    Raises:
        InputError: raised by `check`.
    """
    check(size, source)
    model, kind = saved.model, saved.model.config.kind
    names = bert_format.names_for(size)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    head = head_name(names, kind)
    mean, deviation = model.config.scale  # in the head: all readers get scores as the labels were
    own = {
        f"{head}.weight": state.pop("head.weight") * deviation,
        f"{head}.bias": state.pop("head.bias") * deviation + mean,
    }
    if kind in names.poolers:
        moved = [name for name in state if name.startswith("pooler.")]
        own |= {names.poolers[kind] + name.removeprefix("pooler"): state.pop(name) for name in moved}
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_folder.keep_files(source, folder)
    text, entries = vocabulary.read(source)
    config = bert_format.their_config(size, entries, torch.float32)
    config |= {"architectures": [names.tuned[kind]], **names_of(model.config, saved.labels)}
    config |= ({TEXTS: saved.texts} if saved.texts is not None else {}) | {READING: asdict(saved.reading)}
    tensors, pairs = names.their_tensors(state, config) | own, WordPiece(text).pairs  # as `features` framed
    bert_format.write(folder, size, tensors, config, text, entries, pairs, saved.reading.sequence_length)
    if saved.reading.truncation == "tail":
        place = folder / tokenizer_folder.CONFIG
        bert_format.write_json(place, tokenizer_folder.read_object(place) | OF_TAIL)


def check(size: ModelConfig, source: Path | str) -> None:
    """Check that a model tuned from `source` can be saved.

    Raises:
        InputError: The model is causal: transformers' heads would read [CLS], which attends only
            to itself.
    """
    if size.causal:
        raise InputError("causal models are not supported by keep and submit; use one with full attention", path=source)


def head_name(names: Names, kind: str) -> str:
    """Return Hugging Face's name of a head's last layer."""
    return names.last_layers.get(kind, "classifier")


def pooler_in(names: Names, kind: str, others: Weights) -> Weights:
    """Return the layer before the last one of a head, by our names, where it is not pre-trained."""
    theirs = {part: others.get(f"{names.poolers.get(kind)}.dense.{part}") for part in ("weight", "bias")}
    return {f"pooler.dense.{part}": tensor.float() for part, tensor in theirs.items() if tensor is not None}


def names_of(head: HeadConfig, labels: list[str]) -> Json:
    """Return the labels and problem type for config.json."""
    if head.kind == CHOICE:
        return {}
    words = labels or [f"LABEL_{number}" for number in range(head.outputs)]
    content: Json = {"id2label": {str(number): word for number, word in enumerate(words)}}
    content["label2id"] = {word: number for number, word in enumerate(words)}
    if head.kind == CLASS:
        problem = SEVERAL if head.several else "regression" if head.outputs == 1 else ONE_CLASS
        # text-embeddings-inference counts no labels; CrossEncoder by itself squeezes a score into 0 to 1.
        content |= {"problem_type": problem, "num_labels": head.outputs}
        content["sentence_transformers"] = {"activation_fn": SIGMOID if problem == SEVERAL else "torch.nn.Identity"}
    if head.scale != HeadConfig.scale:
        content |= dict(zip(bert_format.SCALE, head.scale, strict=True))
    return content


def is_tuned(folder: Path) -> bool:
    """Return whether a folder has a fine-tuned model in Hugging Face's format."""
    content = bert_format.read_config(folder) if (folder / bert_format.CONFIG).is_file() else {}
    return class_in(content) in KINDS


def class_in(content: Json) -> str:
    """Return the class of transformers that a config.json names first; "" if it names none."""
    return str((content.get("architectures") or [""])[0])


def head_of(folder: Path | str, size: ModelConfig, others: Weights, kind: str, labels: list[str]) -> Weights:
    """Return the head of a fine-tuned folder for these labels, by our names: rows by theirs, of new labels NaN.

    `others` are the tensors of the folder that are not of pre-training. It is empty if the head is of another
    kind, or knows none of the labels. Answers, choices and scores have no labels, but outputs of one meaning; a head
    of scores is as it was learnt, without their mean and deviation.
    """
    content = bert_format.read_config(folder)
    if KINDS.get(class_in(content)) != kind:
        return {}
    name = head_name(bert_format.names_for(size), kind)
    head = {f"head.{part}": others[f"{name}.{part}"] for part in ("weight", "bias") if f"{name}.{part}" in others}
    pooler = pooler_in(bert_format.names_for(size), kind, others)
    if kind in (ANSWER, CHOICE):
        return head | pooler
    if kind == CLASS and not labels and bert_format.SCALE.keys() <= content.keys():
        return remove_scale(content, head) | pooler
    exact = {str(word): int(number) for number, word in (content.get("id2label") or {}).items()}
    known = {word.casefold(): number for word, number in exact.items()} | exact
    rows = [known.get(label, known.get(label.casefold(), -1)) for label in labels]
    taken = {part: torch.cat([t, torch.full_like(t[:1], torch.nan)])[rows].float() for part, t in head.items()}
    return taken | pooler if max(rows, default=-1) >= 0 else {}


def remove_scale(content: Json, head: Weights) -> Weights:
    """Return the last layer of a head as it was learnt, by our names."""
    mean, deviation = bert_format.scale_of(content)
    return {name: (tensor.float() - mean * name.endswith("bias")) / deviation for name, tensor in head.items()}


def load(folder: Path | str) -> tuple[ModelConfig, SavedModel]:
    """Read a fine-tuned model in Hugging Face format.

    Raises:
        InputError: The folder contains no fine-tuned model, or one with an unsupported head or
            problem type.
    """
    folder = Path(folder)
    content = bert_format.read_config(folder)
    named = class_in(content)
    if named not in KINDS:
        raise InputError(
            f"{named or 'no architecture'} in {bert_format.CONFIG}, must be one of {', '.join(KINDS)}; fine-tune "
            "first: python -m pipeline.evaluate … keep=true",
            path=folder,
        )
    kind = KINDS[named]
    size, state, notes, others = bert_format.load(folder)
    check(size, folder)
    name = head_name(bert_format.names_for(size), kind)
    head = {part: others.get(f"{name}.{part}") for part in ("weight", "bias")}
    if head["weight"] is None or head["bias"] is None:
        raise InputError(f"{name}.weight and {name}.bias, the head of {named}, not found", path=folder)
    several = check_problem(folder, content, kind, len(head["bias"]))
    scale = bert_format.scale_of(content)
    model = BertWithHead(size, HeadConfig(kind, len(head["bias"]), several=several, scale=scale))
    random = {note.partition(":")[0] for note in notes if note.endswith(bert_format.INITIALISED)}
    weights = model.pretrained({name: tensor for name, tensor in state.items() if name not in random})
    weights |= remove_scale(content, {f"head.{part}": t for part, t in head.items() if t is not None})
    weights |= pooler_in(bert_format.names_for(size), kind, others)
    if lost := sorted({*model.state_dict()} - {*weights}):
        raise InputError(f"{len(lost)} tensors of {named} are missing, e.g. {lost[0]}", path=folder)
    model.load_state_dict(weights)
    named_outputs = kind == TAG or (kind == CLASS and (several or len(head["bias"]) > 1))
    labels, reading = stated_by(folder, content, len(head["bias"]) if named_outputs else 0)
    return size, SavedModel(model.eval(), labels, content.get(TEXTS), reading)


def stated_by(folder: Path, content: Json, outputs: int) -> tuple[list[str], Reading]:
    """Return the labels of the outputs, and the part of a text that the model was tuned on, by its config.json.

    Raises:
        InputError: They cannot be read, two labels are the same, or the part is not one that `evaluate` writes.
    """
    try:
        words = {int(number): word for number, word in (content.get("id2label") or {}).items()}
        labels = [words.get(n, f"LABEL_{n}") for n in range(outputs)]
        of_tail = OF_TAIL.items() <= tokenizer_folder.read_object(folder / tokenizer_folder.CONFIG).items()
        usual = asdict(Reading()) | ({"truncation": "tail"} if of_tail else {})
        reading: Reading = built(Reading, usual | content.get(READING, {}))
        length, known = reading.sequence_length, reading.truncation in TRUNCATIONS and len({*labels}) == outputs
        if outputs and max(words, default=0) >= outputs:
            raise ValueError(f"{len(words)} labels of {outputs} outputs")
        if not known or reading.stride < 1 or (length is not None and length < SHORTEST):
            raise ValueError(f"{labels}, {reading}")
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"id2label or {READING} is not what python -m pipeline.evaluate writes ({error}); correct it",
            path=folder / bert_format.CONFIG,
        ) from error
    return labels, reading


def check_problem(folder: Path, content: Json, kind: str, outputs: int) -> bool:
    """Return whether several outputs of a classification are classes of which any number is right; else it is one.

    Raises:
        InputError: Its config.json has another problem type.
    """
    problem = content.get("problem_type")
    if kind == CLASS and outputs > 1 and problem not in (None, ONE_CLASS, SEVERAL):
        raise InputError(
            f"problem_type {problem} with {outputs} outputs is not supported; use {ONE_CLASS} or {SEVERAL}", path=folder
        )
    return kind == CLASS and problem == SEVERAL
