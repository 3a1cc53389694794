"""The model card, made from the stages' manifests."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from model.config import ModelConfig
from pipeline.common.formatting import printable
from pipeline.common.manifest import Manifest

HEAD = """---
license: {license}
library_name: transformers
{task}{language}tags:
- {tags}
---

# {title}

{kind} ({size}), {start} {objective}
({paper}).

| | |
|---|---|
{rows}
"""

# By architecture: its name, its tag on the hub, and its publication.
PUBLISHED = {
    "bert": ("BERT", "bert", "[Devlin et al. 2019](https://arxiv.org/abs/1810.04805)"),
    "modernbert": (
        "ModernBERT", "modernbert", "[Warner et al. 2024](https://arxiv.org/abs/2412.13663)"
    ),
}  # fmt: skip
UNLICENSED = "unknown  # fill in: the licence under which you give these weights away"

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
    config: ModelConfig, parameters: int, manifests: Iterable[Manifest], remarks: dict[str, Any],
    kind_of_entries: str = "WordPiece", mask: str = "[MASK]",
) -> str:  # fmt: skip
    """Return the text of README.md, without sections of stages that left no manifest.

    `remarks` are rows about the weights; of these, `license` goes to the header, and `example`, a
    text with a [MASK], to the end, with the tokenizer's `mask`.
    """
    manifests = list(manifests)
    train = next((manifest for manifest in manifests if manifest.stage == "train"), None)
    data = [manifest for manifest in manifests if manifest.stage == "prepare"]
    corpus = data[0].config.get("corpus", {}) if data else {}
    remarks = dict(remarks)
    example = remarks.pop("example", None)
    start = train.config.get("start") if train else None
    how = origin_of(start, remarks.pop("converted from", None))
    kind, tag, paper = PUBLISHED[config.architecture]
    rows = {
        "parameters": f"{parameters:,}",
        "layers": config.layers,
        "hidden size": config.hidden,
        "attention heads": config.heads,
        "longest sequence": f"{config.positions} tokens",
        "vocabulary": f"{config.vocab_size:,} {kind_of_entries} entries",
    }
    license = remarks.pop("license", None) or UNLICENSED
    language = corpus.get("language")
    text = HEAD.format(
        language=f"language: {quoted(language)}\n" if language else "",
        kind=kind,
        task="" if config.causal else "pipeline_tag: fill-mask\n",
        tags=tag if config.causal else f"{tag}\n- fill-mask",
        paper=paper,
        title=f"{kind} {config.size_name}" + (f", {corpus['name']}" if "name" in corpus else ""),
        size=config.size_name,
        license=license,
        start=how,
        objective=objective_of(config, train),
        rows=table(rows | remarks),
    )
    for part, prepare in enumerate(data, 1):
        title = f"Data, {part} of {len(data)}" if len(data) > 1 else "Data"
        text += section(title, data_rows(prepare, prepare.config.get("corpus", {})))
    if train:
        text += section("Training", recipe_rows(train))
        text += section("Held-out figures", figure_rows(train))
    if config.causal:  # it fills no masks
        return text
    if example is None:
        example = ENGLISH if language in (None, "en") else "[MASK]"
    example = example.replace("[MASK]", mask)
    return text + USE.format(example=json.dumps(example, ensure_ascii=False))


TASKS = {  # of the hub, by type of head
    "class": "text-classification", "choice": "multiple-choice", "tag": "token-classification",
    "answer": "question-answering",
}  # fmt: skip
TUNED_USE = """
## Use

```sh
python -m pipeline.predict pretrained=PATH/OF/THIS/FOLDER input=TEXT
```
"""


def write_tuned(
    config: ModelConfig, head: str, origin: Path | str, task: str, rows: dict[str, Any]
) -> str:
    """Return the text of README.md of a model that was tuned on `task` from that at `origin`."""
    kind, tag, paper = PUBLISHED[config.architecture]
    text = HEAD.format(
        language="", kind=kind, task=f"pipeline_tag: {TASKS[head]}\n", tags=tag, paper=paper,
        title=f"{kind} {config.size_name}, {task}", size=config.size_name, license=UNLICENSED,
        start=f"`{name_of(origin)}` fine-tuned", objective=f"on {task}", rows=table(rows),
    )  # fmt: skip
    return text + TUNED_USE


def quoted(text: str) -> str:
    """Return a text for the header, in quotation marks if YAML reads something else: `no`."""
    return text if yaml.safe_load(text) == text else json.dumps(text)


def objective_of(config: ModelConfig, train: Manifest | None) -> str:
    """Describe what the model was trained to predict as a sentence fragment."""
    if config.causal:
        return "from left to right, to predict the next token"
    judged = config.architecture == "bert"
    pairs = train.config.get("objective", {}).get("next_sentence", judged) if train else judged
    return "with masked-language modelling" + (" and next-sentence prediction" if pairs else "")


def origin_of(start: str | None, copied: str | None) -> str:
    """Describe the origin of the weights as a sentence fragment."""
    if start:
        return f"pre-training continued from `{name_of(start)}`"
    return (
        f"the weights of `{name_of(copied)}`, pre-trained" if copied else "pre-trained from scratch"
    )


def name_of(origin: str) -> str:
    """Return the name of the model in a folder, before any conversion."""
    made = Manifest.read(origin, of_input=True)
    if made is not None and made.stage == "convert":
        origin = made.config.get("train", origin)
    return Path(origin).name


def section(title: str, rows: dict[str, Any]) -> str:
    """Return a heading and a table of two columns, or an empty string without rows."""
    return f"\n## {title}\n\n| | |\n|---|---|\n{table(rows)}\n" if rows else ""


def table(rows: dict[str, Any]) -> str:
    """Return Markdown table rows."""
    return "\n".join(f"| {key} | {value} |" for key, value in rows.items() if value is not None)


def data_rows(prepare: Manifest, corpus: dict[str, Any]) -> dict[str, Any]:
    """Return the rows about the training data."""
    figures = prepare.figures
    totals, documents = figures.get("totals", {}), figures.get("documents", {})
    return {
        "corpus": corpus.get("name"),
        "from": ", ".join(sources(corpus)) or None,
        "documents": number(documents.get("written")),
        "documents held out": number(totals.get("validation_documents") or None),
        "duplicates left out": number(documents.get("duplicate")),
        "tokens of all documents": number(totals.get("tokens")),
        "samples": number(totals.get("train")),
        "sequence length": figures.get("sequence_length"),
        "shards' fingerprint": prepare.fingerprint[:16],
    }


def sources(corpus: dict[str, Any]) -> list[str]:
    """Return the sources of the text: the name of a user's file or folder, else URLs."""
    if corpus.get("path") is not None:
        return [printable(Path(corpus["path"]).name or corpus["path"])]
    own = [file["url"] for file in corpus.get("files") or [] if file.get("url")]
    parts = (corpus.get("parts") or {}).values()
    return own + [source for part in parts for source in sources(part)]


def recipe_rows(train: Manifest) -> dict[str, Any]:
    """Return the rows about training."""
    config, figures = train.config, train.figures
    optimizer, schedule = config.get("optimizer", {}), config.get("schedule", {})
    return {
        "steps": number(figures.get("steps")),
        "samples a step": number(config.get("batch_size")),
        "tokens seen": number(figures.get("tokens")),
        "optimizer": optimizer.get("name"),
        "learning rate": optimizer.get("learning_rate"),
        "weight decay": optimizer.get("weight_decay"),
        "schedule": schedule.get("name"),
        "precision": config.get("precision"),
        "seed": config.get("seed"),
        "device": figures.get("device"),
        "hours": f"{train.seconds / 3600:.2f}",
        "run's fingerprint": train.fingerprint[:16],
    }


def figure_rows(train: Manifest) -> dict[str, Any]:
    """Return the rows of held-out metrics and baselines; none if the weights were not evaluated."""
    rows = {
        name.replace("_", " "): f"{value:.4f}"
        for name, value in train.figures.get("validation", {}).items()
        if isinstance(value, int | float)
    }
    if not rows:
        return {}
    for name, key in (
        ("most frequent token's share", "most_frequent_accuracy"),
        ("more frequent class of pairs' share", "most_frequent_pair_accuracy"),
    ):
        if train.figures.get(key) is not None:
            rows[name] = f"{train.figures[key]:.4f}"
    return rows


def number(value: Any) -> str | None:
    """Format an integer with thousands separators."""
    return f"{value:,}" if isinstance(value, int) else None
