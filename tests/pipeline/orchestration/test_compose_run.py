"""A choice of a group and a key of that group both count, in any order, in a run and in a stage.

The groups are those that `--help` of each stage lists, so that a new one is covered by itself.
"""

import itertools
import re

import pytest
from omegaconf import OmegaConf

from pipeline.cli import composing, conf_files, help_text
from pipeline.config import EvaluateConfig, ExecutorConfig, RunConfig
from pipeline.console.formatting import flatten
from pipeline.errors import BY_FORCE, ConfigError, Diverged, InputError, named
from pipeline.orchestration import compose_run, estimates, stage_keys
from pipeline.records.estimate import Estimate
from pipeline.stages.registry import STAGES
from tests.support import runs
from tests.support.examples import examples
from tests.support.refusals import refused

NEEDED = {"corpus": "corpus=text", "task": "task=own"}  # groups without a default
FORMS = ("{}={}", "+{}={}", "++{}={}", "{}='{}'", '{}="{}"')


def of_command(kind, *words):
    """What a stage's own command reads."""
    schema = STAGES[kind].schema
    chosen = {word.partition("=")[0].lstrip("+") for word in words}
    missing = [group for group in help_text.groups(schema) if group in NEEDED.keys() - chosen]
    return composing.compose(kind, schema, [*(NEEDED[group] for group in missing), *words])


def of_run(kind, *words):
    """What the stage reads in a run."""
    typed = compose_run.expand(["corpus=text", "corpus.path=TEXT", *words])
    config = compose_run.compose_recipe(typed, [])
    return OmegaConf.create(OmegaConf.to_container(config.stages[kind], resolve=True))


def another(value):
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    return "other" if isinstance(value, str) else value * 2 + 1


def cases():
    """(stage, group, choice); `tracking` of a report has no key."""
    for kind, stage in STAGES.items():
        for group in [] if kind == "report" else help_text.groups(stage.schema):
            choices = conf_files.choices(group)
            for choice in [choices[-1], choices[0]][: examples(min(2, len(choices)), quick=1)]:
                yield kind, group, choice


CASES = list(cases())


@pytest.mark.parametrize(("kind", "group", "choice"), CASES)
def test_a_choice_and_a_key_of_it_both_count(kind, group, choice):
    """In one of the forms in which it can be typed, another one for the next choice."""
    config = of_command(kind, f"{group}={choice}")
    key, old = next(
        (key, old)
        for key, old in flatten(OmegaConf.to_container(OmegaConf.create({group: config[group]})))
        if isinstance(old, bool | int | float | str) and old != "???" and not key.endswith((".name", ".kind"))
    )
    form, value = FORMS[CASES.index((kind, group, choice)) % len(FORMS)], another(old)
    OmegaConf.update(config, key, value)
    expected = dict(flatten(OmegaConf.to_container(config)))
    about = (f"{group}.", key.partition(".")[0])
    words = [f"{key}={str(value).lower()}", form.format(group, choice)]
    for order in [words, words[::-1]][: examples(2, quick=1)]:
        found = dict(flatten(OmegaConf.to_container(of_command(kind, *order))))
        assert found == expected, order
    if group in (*stage_keys.GROUPS_FROM_RUN, "task"):
        return
    wanted = {k: v for k, v in expected.items() if k.startswith(about)}
    words = [f"{kind}.{key}={str(value).lower()}", form.format(f"{kind}.{group}", choice)]
    for order in [words, words[::-1]][: examples(2, quick=1)]:
        found = dict(flatten(OmegaConf.to_container(of_run(kind, *order))))
        assert found[key] == value, order
        name = f"{group}.name"
        assert found.get(name) == wanted.get(name), order


COUNTED = {
    "train.schedule=cosine|train.schedule={warmup_share: 0.2}": {"name": "cosine", "warmup_share": 0.2},
    "+train.deepspeed.wall_clock_breakdown=true|train.deepspeed=zero2": {"wall_clock_breakdown": True},
    "train.optimizer=lamb|train.optimizer=adamw|train.clip=2|train.clip=3": {"name": "adamw"},
}


@pytest.mark.parametrize(("words", "values"), COUNTED.items())
def test_words_of_a_stage_count_in_a_run_in_any_order(words, values):
    words, key = words.split("|"), re.search(r"\.(\w+)", words)[1]
    for order in [words, words[::-1]] if len(words) == 2 else [words]:
        found = of_run("train", *order)[key]
        assert {name: found[name] for name in values} == values, order


def test_a_key_of_an_open_group_is_removed_for_one_stage():
    words = ["~train.deepspeed.zero_optimization.overlap_comm", "train.deepspeed=zero2"]
    for order in itertools.permutations(words):
        found = of_run("train", *order).deepspeed.zero_optimization
        assert "overlap_comm" not in found
        assert found.stage == 2


def test_a_file_of_words_is_read_as_typed(tmp_path):
    file = tmp_path / "words"
    file.write_text("prepare.filters.shingle=4  # of near duplicates\n+prepare.filters='web'\n")
    words = [f"corpus.path={tmp_path}", f"@{file}", "train.model.dropout=0.5", "train.tracking.project=1e3"]
    stages = runs.composed("corpus=text", *words, "+model.layers=1", f"--config-dir={tmp_path}").stages
    assert (stages["prepare"].filters.shingle, stages["prepare"].filters.near_duplicates) == (4, 0.8)
    assert (stages["train"].model.dropout, stages["train"].model.layers) == (0.5, 1)
    assert stages["train"].tracking.project == "1e3"


def test_a_choice_without_a_default_is_made_once():
    for order in (["corpus=text", "+corpus=wiki"], ["corpus=wiki", "corpus=text"]):
        with pytest.raises(composing.MISTAKES) as caught:
            of_command("vocab", *order)
        assert str(composing.explain(caught.value)).startswith(f"corpus={order[1].split('=')[1]}: ")


@pytest.mark.parametrize("key", ["corpus.language", "workdir", "mirror", "out", "force"])
def test_what_all_stages_share_is_refused_of_one(key):
    """`train.out=` moved a stage, and its readers read the old one."""
    with refused(ConfigError, key=f"train.{key}"):
        runs.composed("+corpus=sample", f"train.{key}=true")


def test_a_file_of_words_has_comments_and_quotes(tmp_path):
    lines = ["# all of it", "", "seed=3  # don't", "corpus.path=a#b", "'tasks=[a #b]' # c", '  x="1 # 2"#3', "#"]
    (tmp_path / "words").write_text("\n".join(lines), encoding="utf-8-sig")
    found = compose_run.lines_of(str(tmp_path / "words"))
    assert found == ["seed=3", "corpus.path=a#b", "'tasks=[a #b]'", 'x="1 # 2"#3']


def test_what_an_executor_does_not_read_or_sbatch_does_not_take_is_said(capsys):
    words = ["vocab.existing=vocab.txt", "vocab.seed=3", "train.log_every=7", "model=tiny", "model=mini", "seed=1"]
    words += ["train.objective=mlm", "train.objective.pairs=sop"]
    words += ["train.schedule=constant", "train.schedule.final_share=0.1"]
    runs.composed("+corpus=sample", "executor.nodes=4", "estimate_mfu=0.3", *words)
    said = capsys.readouterr().err
    assert said.count("has no effect") == 5
    assert "model is chosen several times" in said
    for tasks, silent in (("[blimp,cola]", True), ("[blimp]", False)):  # one of them reads it; none does
        runs.composed("+corpus=sample", f"tasks={tasks}", "glue=glue", "evaluate.epochs=2", "vocab.seed=3")
        assert (capsys.readouterr().err == "") == silent
    runs.composed("+corpus=sample", "executor=slurm", "executor.nodes=4", "executor.time=1-12")
    assert capsys.readouterr().err == ""
    option = "executor.options.train"
    mistakes = {f"executor.time={limit}": "executor.time" for limit in ("12h", "24", "24:00", "1:2:3:4")}
    mistakes |= {f"+{option}=['mem=64G']": option, f"+{option}=--mem=64G": option}
    mistakes |= {"executor.partition=": "executor.partition", "train.data.cache=cache": "train.data.cache"}
    for word, key in mistakes.items():
        with refused(ConfigError, key=key):
            runs.composed("+corpus=sample", "executor=slurm", word)


# A run over seeds of pre-training: what is shared, what is copied, and what it is called.


def planned(workdir, *words):
    return runs.planned("+corpus=sample", "tasks=[sample_next]", f"workdir={workdir}", *words)


def test_only_what_follows_training_is_copied(tmp_path):
    alone = planned(tmp_path)
    nodes = planned(tmp_path, "seeds=[0,1,7]")
    names = ["vocab", "prepare", "tasks"]
    for end in ("", "-seed1", "-seed7"):
        names += [f"train{end}", f"convert{end}", f"evaluate-sample_next{end}"]
    assert list(nodes) == [*names, "report"]
    assert nodes["train-seed7"].needs == ("prepare", "vocab")
    assert nodes["convert-seed7"].needs[0] == "train-seed7"
    assert "convert-seed7" in nodes["evaluate-sample_next-seed7"].needs
    assert nodes["report"].needs == tuple(names)
    # The stages of the run's own seed are those of a run without seeds.
    for name, node in alone.items():
        if name != "report":
            assert nodes[name].fingerprint == node.fingerprint
            assert nodes[name].config == node.config


def test_a_copy_differs_in_seed_and_folders_alone(tmp_path):
    nodes = planned(tmp_path, "seeds=[0,1]")
    own, other = nodes["train"].config, nodes["train-seed1"].config
    assert (other.seed, other.out) == (1, f"{tmp_path}/train-seed1")
    own.seed, own.out = other.seed, other.out
    assert other == own
    converted = nodes["convert-seed1"].config
    assert converted.train == f"{tmp_path}/train-seed1"
    first, second = (nodes[f"evaluate-sample_next{end}"].config for end in ("", "-seed1"))
    assert second.pretrained == f"{tmp_path}/convert-seed1"
    # The network with random weights is the same for all.
    assert (first.baseline, second.baseline) == (True, False)
    report = nodes["report"].config
    assert f"{tmp_path}/train-seed1" in report.stages


def test_the_seed_of_the_run_need_not_be_among_them(tmp_path):
    nodes = planned(tmp_path, "seeds=[3,1]", "seed=2")
    trained = [name for name, node in nodes.items() if node.kind == "train"]
    assert trained == ["train-seed3", "train-seed1"]
    baselines = [n.config.baseline for n in nodes.values() if isinstance(n.config, EvaluateConfig)]
    assert baselines == [True, False]


def test_phases_and_checkpoints_of_a_recipe_follow_their_seed(tmp_path):
    nodes = planned(tmp_path, "recipe=devlin", "seeds=[0,1]")
    second = nodes["train-512-seed1"].config
    assert (second.seed, second.start) == (1, f"{tmp_path}/train-seed1")
    nodes = planned(tmp_path, "recipe=babylm", "seeds=[0,1]")
    assert "train-seed1" in nodes["convert-checkpoints-seed1"].needs


@pytest.mark.parametrize(
    ("words", "key"), [(["seeds=[1,1]"], "seeds"), (["seeds=[0,1]", "train.seed=4"], "train.seed")]
)
def test_what_cannot_be_combined_is_refused(tmp_path, words, key):
    with refused(ConfigError, key=key):
        planned(tmp_path, *words)


# What a run will take, as one line before it starts.


@pytest.mark.parametrize(("disk", "said"), [(1e6, False), (1e18, True)])
def test_a_disk_that_is_too_small_is_said(disk, said, tmp_path):
    found = {"prepare": Estimate(60.0, disk=disk / 2), "train": Estimate(None, disk=disk / 2)}
    config = RunConfig(workdir=str(tmp_path / "new" / "work"))
    assert ("warning: 1,000,000,000.0 GB" in estimates.line(found, config)) == said
    assert "warning" not in estimates.line(found, RunConfig(workdir="s3://bucket/work"))


@pytest.mark.parametrize(("memory", "said"), [(1e6, False), (1e18, True)])
def test_a_memory_that_is_too_small_is_said_of_this_machine(memory, said):
    found = {"train": Estimate(None, memory=memory), "prepare": Estimate(1.0)}
    assert ("warning: train needs 1,000,000,000.0 GB" in estimates.line(found, RunConfig())) == said
    elsewhere = RunConfig(executor=ExecutorConfig(name="slurm"))
    assert "warning" not in estimates.line(found, elsewhere)


# What a stage advises, in the form that a run takes.


NAMES = ["prepare", "prepare-512", "train", "train-512", "evaluate", "evaluate-curve"]
OUTS = {name: f"s3://wiki/run/{name}" for name in [*NAMES, "evaluate-rte"]}


@pytest.mark.parametrize(
    ("stage", "error", "shown"),
    [
        ("train-512", ConfigError("too few", "steps", 1), "train-512.steps=1: too few"),
        (
            "train",
            ConfigError(f"goes with bf16; set {named('precision')}=bf16", "compute", "compile"),
            "train.compute=compile: goes with bf16; set train.precision=bf16",
        ),
        ("train", ConfigError("is not a folder", "data.cache", 1), "train.data.cache=1: is not a folder"),
        # Keys of a run, paths and addresses.
        ("prepare", InputError("no such file", "corpus.path", "a/size=3"), "corpus.path=a/size=3: no such file"),
        ("train", InputError("not found", path="https://a.b/c?steps=1"), "https://a.b/c?steps=1: not found"),
        ("preflight", ConfigError("bad", "steps"), "steps: bad"),
        ("train-512-seed1", ConfigError("bad", "steps"), "train-512.steps: bad"),
        ("evaluate-curve-blimp", ConfigError("bad", "epochs"), "evaluate-curve.epochs: bad"),
    ],
)
def test_keys_of_a_stage_get_its_name(stage, error, shown):
    told = stage_keys.explain_in_run(error.but(where=f"stage {stage}"), NAMES, OUTS, False)
    assert (type(told), str(told)) == (type(error), f"stage {stage}: {shown}")


@pytest.mark.parametrize(
    ("stage", "path", "forced"),
    [
        ("train", "s3://wiki/run/prepare", "prepare"),
        ("train-512", "s3://wiki/run/prepare-512/a.arrow", "prepare-512"),
        ("train", "s3://wiki/run/train/checkpoints/1", "train"),
        ("evaluate-rte", None, "evaluate-rte"),
    ],
)
def test_the_stage_whose_folder_is_wrong_is_forced(stage, path, forced):
    error = InputError(f"make it again {BY_FORCE}", path=path, where=f"stage {stage}")
    assert str(error).endswith("make it again with force=true")
    assert str(stage_keys.explain_in_run(error, NAMES, OUTS, False)).endswith(f"make it again with --force {forced}")
    assert compose_run.expand(["--force", forced]) == [f"force=[{forced}]"]
    assert str(stage_keys.explain_in_run(error, NAMES, OUTS, True)).endswith(f"by deleting {OUTS[forced]}")


def test_an_error_of_a_plan_has_the_keys_of_a_run():
    error = ConfigError(f"no such key; did you mean {named('size')}?", "sizee")
    assert (
        str(stage_keys.explain_in_plan(error, "vocab"))
        == "stage vocab: vocab.sizee: no such key; did you mean vocab.size?"
    )
    error = ConfigError("no such file", "corpus.path", "x")
    assert str(stage_keys.explain_in_plan(error, "vocab")) == "stage vocab: corpus.path=x: no such file"


def test_an_error_keeps_its_type_and_fields():
    error = stage_keys.explain_in_run(Diverged("a", path="log", where="stage train"), NAMES, OUTS, False)
    assert (type(error), error.path) == (Diverged, "log")
