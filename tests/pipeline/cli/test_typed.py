"""What is typed beats a file's value, and that the schema's default; what excludes each other is refused only typed."""

import re
from typing import get_args, get_origin

import pytest

from pipeline.cli import composing, help_text, overrides
from pipeline.cli.overrides import type_of
from pipeline.common.tables import read_table
from pipeline.config import EmbedConfig, PredictConfig
from pipeline.errors import ConfigError
from pipeline.stages import fingerprints
from pipeline.stages.registry import STAGES
from tests.support.refusals import refused
from tests.support.runs import composed, configured

NEEDED = {"corpus": "+corpus=text", "task": "+task=own"}


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    ("stage", "words", "expected"),
    [
        ("train", ["epochs=1"], {"steps": None, "epochs": 1}),
        ("train", ["words=1e8"], {"steps": None, "words": 10**8}),
        ("train", ["+epochs=1", "steps=9"], {"steps": 9, "epochs": 1}),  # both are limits
        ("train", ["epochs=null"], {"steps": 1000}),
        ("train", ["schedule.warmup_share=0.2"], {"schedule.warmup_share": 0.2, "schedule.warmup_steps": None}),
        ("evaluate", ["+task=xquad", "task.dev=FILE"], {"task.dev_share": 0.0, "task.dev": "FILE"}),
        ("evaluate", ["+task=xquad"], {"task.dev_share": 0.25}),
        ("vocab", ["+corpus=sample", "size=900"], {"size": 900, "existing": None}),
        ("convert", ["ema=true"], {"ema": True, "average": 1}),
    ],
)
def test_what_is_typed_beats_what_is_not_for_each_rank(stage, words, expected, rank, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    config = configured(stage, *words)
    for key, value in expected.items():
        found = config
        for name in key.split("."):
            found = getattr(found, name)
        assert found == value, key


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.epochs=1"], {"steps": None, "epochs": 1}),
        (["train.words=1e6"], {"steps": None, "words": 10**6}),
        (["train.epochs=1", "steps=70"], {"steps": 70, "epochs": 1}),
        (["train.epochs=1", "train.steps=70"], {"steps": 70, "epochs": 1}),
        (["recipe=babylm", "train.steps=70"], {"steps": 70, "epochs": 10, "words": 10**8}),  # the challenge's rules
        (["recipe=babylm", "train.data.more=[a]", "train.data.weights=[1,2]"], {"epochs": None, "words": 10**8}),
        (["recipe=babylm"], {"steps": None, "epochs": 10, "words": 10**8}),
        ([], {"steps": 4250, "epochs": None}),
    ],
)
def test_in_a_run_too_what_is_typed_beats_the_recipe(words, expected):
    train = composed("corpus=text", "corpus.path=.", *words, "tasks=[]").stages["train"]
    assert {key: getattr(train, key) for key in expected} == expected


def test_a_recipe_of_ones_own_gives_way_and_says_so(tmp_path, capsys):
    for name, text in {
        "recipe": "# @package _global_\ndefaults:\n  - /stage@stages.vocab: vocab\n  - /stage@stages.prepare: prepare\n"
        "  - /stage@stages.train: train\n  - /model: tiny\n  - _self_\nrecipe: mine\nstages:\n"
        "  vocab: {existing: FOLDER}\n  train: {steps: 77, schedule: {warmup_steps: 5}}\n",
        "corpus": "name: mine\nreader: text\npath: PATH\nfiles: [{url: U}]\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text(text)
    words = [f"--config-dir={tmp_path}", "recipe=mine", "corpus=mine"]
    typed = ["vocab.size=900", "train.schedule.warmup_share=0.2", "train.epochs=2", "prepare.source=S"]
    composed(*words, "steps=9", "train.steps=8")
    assert "steps=9 gives way to train.steps=8" in capsys.readouterr().err
    made = composed(*words, *typed).stages
    assert (made["vocab"].existing, made["train"].schedule.warmup_steps, made["train"].steps) == (None, None, None)
    assert (made["prepare"].corpus.path, made["vocab"].corpus.path) == (None, "PATH"), "of one stage alone"
    said = capsys.readouterr().err
    assert all(f"gives way to {word}" in said for word in typed)
    unchanged = composed(*words).stages
    assert (unchanged["vocab"].existing, unchanged["train"].steps) == ("FOLDER", 77)
    assert unchanged["prepare"].corpus.path == "PATH"


@pytest.mark.parametrize("cure", ["train.schedule.total_steps=null", "train.steps=900000"])
def test_a_schedule_of_a_recipe_whose_steps_gave_way_names_what_to_type(cure):
    words = ["recipe=devlin", "corpus=text", "corpus.path=.", "tasks=[]", "train.epochs=1"]
    with refused(ConfigError, "train.steps.* null", key="train.schedule.total_steps"):
        composed(*words)
    assert composed(*words, cure).stages["train"].epochs == 1


TWO = {
    "train schedule.warmup_share=0.01 schedule.warmup_steps=5": "schedule.warmup_steps",
    "prepare +corpus=text corpus.path=. source=S": "corpus.path",
    "vocab existing=V size=30522": "existing",
    "train epochs=1 data.more=[a] data.weights=[1,2]": "epochs",
    "evaluate +task=own task.dev=F task.dev_share=0.1": "task.dev_share",
    "convert ema=true average=3": "average",
}


@pytest.mark.parametrize(("typed", "key"), TWO.items())
def test_two_typed_ones_are_refused(typed, key):
    with refused(ConfigError, key=key):
        configured(*typed.split())


def lists():
    """(stage, key, type of an item) of every list of every schema, those of a task among them."""
    for stage, known in STAGES.items():
        every = {*fingerprints.defaults_of(known.schema), *known.schema.__dataclass_fields__, "data.more"}
        for key in sorted(every):
            kind = type_of(known.schema, key)
            if get_origin(kind) is list and not key.startswith("_"):
                yield stage, key, get_args(kind)[0]


@pytest.mark.parametrize(("stage", "key", "kind"), lists())
def test_an_item_is_neither_null_nor_a_list_and_one_value_is_told_to_be_a_list(stage, key, kind):
    words = [word for group, word in NEEDED.items() if group in help_text.groups(STAGES[stage].schema)]
    item = "VALUE" if kind is str else "3"
    for wrong in ("[null]", f"[{item},null]", f"[[{item}]]", item, "{a: 1}"):
        with refused(ConfigError) as raised:
            configured(stage, *words, f"{key}={wrong}")
        assert raised.value.key.partition("[")[0] == key
    if kind in (int, float, str):
        with refused(ConfigError, match=re.escape(f"'{key}=[{item}]'")):
            configured(stage, *words, f"{key}={item}")


def test_lists_of_a_run_are_checked_the_same_way():
    for word, key in (("evaluate.tasks=[null]", "evaluate.tasks[0]"), ("tasks=[[rte]]", "tasks[0]")):
        with refused(ConfigError, key=key):
            composed("corpus=text", "corpus.path=.", word)


OTHER_WORDS = read_table(overrides.__file__, "other_words.yaml")
SCHEMAS = {**{name: stage.schema for name, stage in STAGES.items()}, "predict": PredictConfig, "embed": EmbedConfig}


def test_every_word_of_another_program_or_without_its_section_leads_to_a_key_that_there_is():
    assert "did you mean model.dropout?" in str(composing.unknown_key("dropout", SCHEMAS["train"]))
    with refused(ConfigError, r"did you mean train\?", key="model"):
        configured("convert", "model=tiny")
    ours = {key for entry in OTHER_WORDS.values() for key in entry.partition("; ")[0].split()}
    assert not [key for key in ours if all(type_of(schema, key) is None for schema in SCHEMAS.values())]
    for name, schema in SCHEMAS.items():
        for word in OTHER_WORDS.keys() - schema.__dataclass_fields__:
            meant = re.search(r"did you mean ([^?]+)\?", str(composing.unknown_key(word, schema)))
            assert meant is None or type_of(schema, meant[1]) is not None, (name, word)


def test_a_number_that_may_be_null_says_so_and_trackers_of_deepspeed_are_refused_by_name():
    with refused(ConfigError, "null", key="clip"):
        configured("train", "clip=false")
    for tool in ("tensorboard", "csv_monitor", "comet", "wandb"):
        with refused(ConfigError, key=f"deepspeed.{tool}.enabled"):
            configured("train", f"+deepspeed.{tool}.enabled=true")
