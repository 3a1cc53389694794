"""The model card, made from the stages' manifests."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from model.config import ModelConfig
from pipeline.common.tables import read_table
from pipeline.console.redact import one_line, redact
from pipeline.records.manifest import Manifest
from pipeline.records.metrics import CorpusCounts, TrainingSummary
from pipeline.storage import strict_json

HEAD = """---
{header}---

# {title}

{kind} ({size}), {start} {objective}
({paper}).

| | |
|---|---|
{rows}
"""

# By architecture, which is its tag on the hub: its name, and its publication.
PUBLISHED = {
    "bert": ("BERT", "[Devlin et al. 2019](https://arxiv.org/abs/1810.04805)"),
    "modernbert": ("ModernBERT", "[Warner et al. 2024](https://arxiv.org/abs/2412.13663)"),
    "roberta": ("RoBERTa", "[Liu et al. 2019](https://arxiv.org/abs/1907.11692)"),
    "xlm-roberta": ("XLM-RoBERTa", "[Conneau et al. 2020](https://arxiv.org/abs/1911.02116)"),
    "camembert": ("CamemBERT", "[Martin et al. 2020](https://arxiv.org/abs/1911.03894)"),
}
Rows = dict[str, Any]  # cells by title
UNLICENSED = "unknown; fill in the header: under which licence you give these weights away"

ENGLISH = "The capital of France is [MASK]."
USE = """
## Use

```python
from transformers import pipeline

fill = pipeline("fill-mask", "PATH/OF/THIS/FOLDER")
fill({example})
```
"""


def write(
    config: ModelConfig,
    parameters: int,
    manifests: Iterable[Manifest],
    remarks: Rows,
    kind_of_entries: str = "WordPiece",
    mask: str = "[MASK]",
    fills: bool = True,
) -> str:
    """Return the text of README.md, without sections of stages that left no manifest.

    `remarks` are rows about the weights; of these, `license` goes to the header, and `example`, a
    text with a [MASK], to the end, with the tokenizer's `mask`, if the model `fills` masks: one with a
    random masked-LM head does not, nor does a causal one.
    """
    manifests, remarks = list(manifests), dict(remarks)
    train = next((manifest for manifest in manifests if manifest.stage == "train"), None)
    data = [manifest for manifest in manifests if manifest.stage == "prepare"]
    corpus = data[0].config.get("corpus", {}) if data else {}
    license, example = remarks.pop("license", None), remarks.pop("example", None)
    start = origin_of(train.config.get("start") if train else None, remarks.pop("converted from", None))
    rows = {
        "parameters": f"{parameters:,}",
        "layers": config.layers,
        "hidden size": config.hidden,
        "attention heads": config.heads,
        "longest sequence": f"{config.positions} tokens",
        "vocabulary": f"{config.vocab_size:,} {kind_of_entries} entries",
    }
    rows |= ({} if license else {"licence": UNLICENSED}) | remarks
    fills = fills and not config.causal
    header = header_of(config, license, corpus.get("language"), fills)
    text = head(config, corpus.get("name"), header, start, objective_of(config, train), rows)
    for part, prepare in enumerate(data, 1):
        title = f"Data, {part} of {len(data)}" if len(data) > 1 else "Data"
        text += section(title, data_rows(prepare, prepare.config.get("corpus", {})))
    if train:
        text += section("Training", recipe_rows(train)) + section("Held-out figures", figure_rows(train))
    if not fills:
        return text
    if example is None:
        example = ENGLISH if corpus.get("language") in (None, "en") else "[MASK]"
    return text + USE.format(example=redact(json.dumps(example.replace("[MASK]", mask), ensure_ascii=False)))


def header_of(config: ModelConfig, license: str | None, language: str | None, fills: bool) -> Rows:
    """Return the card's header, which the hub reads."""
    tags = ["fill-mask"] if fills else []
    header = {
        "license": one_line(license or "unknown"),
        "library_name": "transformers",
        "pipeline_tag": "".join(tags),
        "language": one_line(language or ""),
        "tags": [config.architecture, *tags],
    }
    return {key: value for key, value in header.items() if value}


def head(config: ModelConfig, about: str | None, header: Rows, start: str, objective: str, rows: Rows) -> str:
    """Return a card up to its first table."""
    kind, paper = PUBLISHED[config.architecture]
    return HEAD.format(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        title=one_line(f"{kind} {config.size_name}" + (f", {about}" if about is not None else "")),
        kind=kind,
        paper=paper,
        size=config.size_name,
        start=one_line(start),
        objective=one_line(objective),
        rows=table(rows),
    )


TASKS = {  # of the hub, by type of head
    "class": "text-classification",
    "choice": "multiple-choice",
    "tag": "token-classification",
    "answer": "question-answering",
}
TUNED_USE = """
## Use

```sh
python -m pipeline.predict pretrained=PATH/OF/THIS/FOLDER input=TEXT
```
"""


def write_tuned(folder: Path, config: ModelConfig, kind: str, origin: Path | str, task: str, rows: Rows) -> None:
    """Write README.md of a model that was tuned on `task` from that at `origin`; `kind` is the type of its head."""
    header: Rows = {"license": "unknown", "library_name": "transformers", "pipeline_tag": TASKS[kind]}
    header |= {"tags": [config.architecture]}
    start, rows = f"`{name_of(str(origin))}` fine-tuned", rows | {"licence": UNLICENSED}
    text = head(config, task, header, start, f"on {task}", rows) + TUNED_USE
    (folder / "README.md").write_text(text, encoding="utf-8")
    add_serving(folder, TASKS[kind], config.architecture, {})


def objective_of(config: ModelConfig, train: Manifest | None) -> str:
    """Describe what the model was trained to predict as a sentence fragment."""
    if config.causal:
        return "from left to right, to predict the next token"
    judged = config.traits.sentence_pairs
    pairs = train.config.get("objective", {}).get("next_sentence", judged) if train else judged
    return "with masked-language modelling" + (" and next-sentence prediction" if pairs else "")


def origin_of(start: str | None, copied: str | None) -> str:
    """Describe the origin of the weights as a sentence fragment."""
    if start:
        return f"pre-training continued from `{name_of(start)}`"
    return f"the weights of `{name_of(copied)}`, pre-trained" if copied else "pre-trained from scratch"


def name_of(origin: str) -> str:
    """Return the name of the model in a folder, before any conversion."""
    made = Manifest.read(origin, of_input=True)
    if made is not None and made.stage == "convert":
        origin = made.config.get("train", origin)
    return Path(origin).name


def section(title: str, rows: Rows) -> str:
    """Return a heading and a table of two columns, or an empty string without rows."""
    return f"\n## {title}\n\n| | |\n|---|---|\n{table(rows)}\n" if rows else ""


def table(rows: Rows) -> str:
    """Return Markdown table rows."""
    cells = ([one_line(str(cell)).replace("|", r"\|") for cell in row] for row in rows.items() if row[1] is not None)
    return "\n".join(f"| {key} | {value} |" for key, value in cells)


def data_rows(prepare: Manifest, corpus: Rows) -> Rows:
    """Return the rows about the training data."""
    counts = CorpusCounts.of(prepare)
    return {
        "corpus": corpus.get("name"),
        "from": ", ".join(sources(corpus)) or None,
        **licence_rows(corpus, counts.notes),
        "documents": number(counts.written),
        "documents held out": number(counts.held_documents),
        "duplicates left out": number(counts.documents["duplicate"]),
        "tokens of these documents": number(counts.tokens),
        "samples": number(counts.train),
        "sequence length": number(counts.sequence_length),
        "shards' fingerprint": prepare.fingerprint[:16],
    }


def sources(corpus: Rows) -> list[str]:
    """Return the sources of the text: the name of a user's file or folder, else URLs."""
    if corpus.get("path") is not None:
        return [one_line(Path(corpus["path"]).name or corpus["path"])]
    own = [one_line(file["url"]) for file in corpus.get("files") or [] if file.get("url")]
    parts = (corpus.get("parts") or {}).values()
    return own + [source for part in parts for source in sources(part)]


def licence_rows(corpus: Rows, notes: Iterable[str]) -> Rows:
    """Return the rows of licence and attribution of the corpora that are known, by what is in `licences.yaml`."""
    licences: dict[str, tuple[str, str]] = {}
    dumps = [note for note in notes if "dumps of " in note]
    for text in [*dumps, *places_of(corpus, with_dumps=not dumps)]:
        for known in read_table(__file__, "licences.yaml"):
            if fits := re.search(known["match"], text):
                parts = {key: (value or "").replace("_", "-") for key, value in fits.groupdict().items()}
                date, licence = parts.get("date", ""), known["licence"]
                if "before" in known and not date:
                    licence += f", of a dump before {known['since']} {known['before']}"
                elif "before" in known and date < known["since"]:
                    licence = known["before"]
                dump = f", dump of {date[:4]}-{date[4:6]}-{date[6:]}" if date else ""
                licences.setdefault(known["who"].format(**parts), (licence, dump))
                break
    return {
        "licence of the text": "; ".join(dict.fromkeys(licence for licence, _ in licences.values())) or None,
        "attribution": "; ".join(f"{who}{dump}" for who, (_, dump) in licences.items()) or None,
    }


def places_of(corpus: Rows, with_dumps: bool) -> Iterator[str]:
    """Yield name, reader and address of a corpus and its parts; with or without those of dumps that name themselves."""
    if with_dumps or corpus.get("reader") != "wikipedia":
        urls = [corpus["path"]] if corpus.get("path") else [file.get("url") for file in corpus.get("files") or []]
        for url in urls or [""]:
            yield f"{corpus.get('name')} {corpus.get('reader')} {url}"
    for part in (corpus.get("parts") or {}).values():
        yield from places_of(part, with_dumps)


def recipe_rows(train: Manifest) -> Rows:
    """Return the rows about training."""
    config, summary = train.config, TrainingSummary.of(train)
    optimizer, schedule = config.get("optimizer", {}), config.get("schedule", {})
    return {
        "steps": number(summary.steps),
        "samples a step": number(config.get("batch_size")),
        "tokens seen": number(summary.tokens),
        "optimizer": optimizer.get("name"),
        "learning rate": optimizer.get("learning_rate"),
        "weight decay": optimizer.get("weight_decay"),
        "schedule": schedule.get("name"),
        "precision": config.get("precision"),
        "seed": config.get("seed"),
        "device": summary.device,
        "hours": f"{summary.hours:.2f}",
        "run's fingerprint": train.fingerprint[:16],
    }


def figure_rows(train: Manifest) -> Rows:
    """Return the rows of held-out metrics and baselines; none if the weights were not evaluated."""
    summary = TrainingSummary.of(train)
    if not summary.validation:
        return {}
    rows = {name.replace("_", " "): value for name, value in summary.validation.items()} | {
        "most frequent token's share": summary.most_frequent_accuracy,
        "more frequent class of pairs' share": summary.most_frequent_pair_accuracy,
    }
    return {name: f"{value:.4f}" for name, value in rows.items() if value is not None}


def number(value: int | None) -> str | None:
    """Format an integer with thousands separators; none for 0, which was not noted."""
    return f"{value:,}" if value else None


SERVING = "\n## Serving\n"


def serving(task: str, architecture: str, figures: Rows, problem: str = "") -> str:
    """Return how other programs serve a folder, by its type of problem or the hub's task.

    `figures` are of its ONNX, if it has it.
    """
    table_of, rows = read_table(__file__, "serving.yaml"), {}
    for part in ("folder", architecture, *(["onnx"] if figures else [])):
        for tool, by_kind in table_of.get(part, {}).items():
            if line := by_kind.get(problem) or by_kind.get(task) or by_kind.get("all"):
                code, dash, remark = line.partition(" -- ")
                rows[tool] = f"`{code}`{dash and ', '}{remark}"
    lines = table(rows).replace("FOLDER", "PATH/OF/THIS/FOLDER").replace("TASK", task)
    text = f"{SERVING}\n| program | line |\n|---|---|\n{lines}\n"
    if figures:
        text += f"\n`onnx/model.onnx`: PyTorch's outputs within {figures['largest_onnx_difference']:.1e}.\n"
    if "int8" in figures:
        text += f"\n`onnx/model_quantized.onnx`, int8: {nearness(figures['int8'])}.\n"
    return text


def add_serving(folder: Path, task: str, architecture: str, figures: Rows) -> None:
    """Write into the card of a folder how it is served, in place of what an earlier conversion wrote."""
    card, problem = folder / "README.md", strict_json.own(folder / "config.json").get("problem_type", "")
    text = card.read_text(encoding="utf-8").partition(SERVING)[0]
    card.write_text(text + serving(task, architecture, figures, problem), encoding="utf-8")


def nearness(int8: Rows) -> str:
    """Return how near int8 is to fp32, as a sentence fragment."""
    score = f", {int8['metric']} {int8['int8']:.4f}, of fp32 {int8['fp32']:.4f}" if "metric" in int8 else ""
    return f"cosine to fp32 at least {int8['least_cosine']:.4f} on {int8['texts']}{score}"
