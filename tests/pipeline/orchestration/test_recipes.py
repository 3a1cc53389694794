"""Recipes are whole: every stage has keys that there are, and phases fit each other."""

import re
from dataclasses import replace

import pytest

from model.training.extending import TrajectoryHash
from model.training.schedule import Schedule
from pipeline.cli import conf_files
from pipeline.errors import ConfigError
from pipeline.orchestration import estimates, graph
from tests.support.runs import composed, planned


@pytest.mark.parametrize("recipe", conf_files.choices("recipe"))
def test_a_phase_goes_on_where_the_one_before_it_ended(recipe):
    nodes = planned("+corpus=text", "corpus.path=TEXT", f"recipe={recipe}")
    phases = [node.config for node in nodes.values() if node.kind == "train"]
    done = 0
    for phase in phases:
        assert phase.start_optimizer == bool(done)
        own = phase.schedule.total_steps is None  # a schedule of its own, as of LAMB's phases
        assert phase.schedule.first_step == (0 if own else done)
        done += phase.steps or 0  # null: as many as its limits allow
    assert phases[-1].schedule.total_steps in (None, done)
    assert len({(p.model.layers, p.schedule.name, p.schedule.decay_share) for p in phases}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "steps"), [("lamb", 101), ("modern", 20_001), ("devlin", 3_000_000)])
def test_phases_share_the_steps_of_a_run_as_those_of_the_recipe(recipe, steps):
    def of(*words):
        nodes = planned("+corpus=text", "corpus.path=TEXT", f"recipe={recipe}", *words)
        return [node.config for node in nodes.values() if node.kind == "train"]

    before, phases = of(), of(f"steps={steps}")
    assert sum(phase.steps for phase in phases) == steps
    factor, done = steps / sum(phase.steps for phase in before), 0
    for phase, longer in zip(phases, before, strict=True):
        assert abs(phase.steps - factor * longer.steps) < 1
        own = longer.schedule.total_steps is None
        assert phase.schedule.first_step == (0 if own else done)
        assert phase.schedule.total_steps == (None if own else steps)
        done += phase.steps


@pytest.mark.parametrize("recipe", ["laptop", "modern-laptop"])
def test_a_training_of_minutes_can_be_extended(recipe):
    def of(*words):
        config = planned("+corpus=sample", f"recipe={recipe}", *words)["train"].config
        return config, TrajectoryHash(config, config.steps, "")

    (config, usual), (_, longer) = of(), of("train.steps=9000")
    assert config.schedule.spread_steps is None, "as in runs of earlier code"
    stable = Schedule.of(config, config.steps).steps_before_decay
    assert stable > config.save_every
    assert usual.hash_of(stable) == longer.hash_of(stable)


def test_steps_of_one_training_are_set_beside_those_of_all():
    nodes = planned("+corpus=sample", "recipe=lamb", "steps=1000", "+train-512.steps=7")
    assert [nodes[name].config.steps for name in ("train", "train-512")] == [818, 7]


def test_a_single_training_takes_the_steps_of_the_run():
    for words, steps in ((), None), (("steps=7",), 7):
        nodes = planned("+corpus=sample", "recipe=babylm", "tasks=[sample_next]", *words)
        assert nodes["train"].config.steps == steps


def test_steps_that_leave_a_phase_without_any_are_refused():
    with pytest.raises(ConfigError, match="train-decay"):
        planned("+corpus=sample", "recipe=modern", "steps=10")


@pytest.mark.slow
def test_a_modern_recipe_brings_its_model_and_another_may_be_named():
    assert planned("+corpus=sample", "recipe=modern-laptop")["train"].config.model.layers == 4
    mini = planned("+corpus=sample", "recipe=modern-laptop", "model=modern-mini")
    assert mini["train"].config.model.name == "modern-mini"
    assert planned("+corpus=sample")["train"].config.model.name == "tiny"


def test_a_key_of_the_model_is_that_of_all_trainings_whatever_the_recipe_says():
    words = ("+corpus=sample", "recipe=modern", "model.rotary_global=2e4", "+model.dropout=0.25")
    nodes = planned(*words, "train-decay.model.dropout=0.5")
    phases = [nodes[name].config.model for name in ("train", "train-8192", "train-decay")]
    assert [size.dropout for size in phases] == [0.25, 0.25, 0.5]
    assert [size.rotary_global for size in phases] == [2e4] * 3
    assert {size.name for size in phases} == {"modern-base"}
    assert planned("+corpus=sample", "model.dropout=0.2")["train"].config.model.dropout == 0.2


@pytest.mark.parametrize("recipe", ["laptop", "modern-laptop", "babylm"])
def test_recipes_of_short_sequences_offer_no_more_positions(recipe):
    assert planned("+corpus=sample", f"recipe={recipe}", "tasks=[sample_next]")["train"].config.model.positions == 0


def test_a_key_that_no_model_has_is_refused_with_a_near_one():
    with pytest.raises(ConfigError, match=r"model\.dropout\?"):
        planned("+corpus=sample", "model.dropuot=0.2")


@pytest.mark.slow
def test_the_hours_of_the_modern_recipe_are_those_of_its_page(root, tmp_path):
    # A folder of its own: shards that are there, as of the demo, count.
    words = ["+corpus=sample", "recipe=modern", "estimate_gpu=H100", "estimate_mfu=0.35", f"workdir={tmp_path}"]
    config = composed(*words)
    found = estimates.estimate_stages(config, graph.plan_graph(config))
    phases = ["train", "train-8192", "train-decay"]
    hours = [found[phase].gpu_hours for phase in phases]
    page = (root / "docs/modernbert.md").read_text()
    said = re.search(r"about (\d+) GPU hours of training, of\s+which (\d+) in the first", page)
    assert [sum(hours), hours[0]] == pytest.approx([int(count) for count in said.groups()], abs=1)
    tokens = [float(re.search(r"([\d,.]+) M tokens", str(found[p]))[1].replace(",", "")) for p in phases]
    assert tokens == pytest.approx([80_216, 11_324, 2_700], rel=0.02)
    assert all("steps" in str(found[phase]) for phase in phases)


def test_a_resumed_training_takes_its_remaining_steps(tmp_path):
    config = composed("+corpus=sample", f"workdir={tmp_path}")
    nodes = [replace(node, done=4000 if node.kind == "train" else 0) for node in graph.plan_graph(config)]
    assert "(250 steps" in str(estimates.estimate_stages(config, nodes)["train"])


def test_a_corpus_without_its_path_is_refused_before_work_begins(tmp_path):
    config = composed("+corpus=text", f"workdir={tmp_path}")
    with pytest.raises(ConfigError, match=r"corpus\.path: is required for corpus text; add corpus\.path=PATH"):
        estimates.estimate_stages(config, graph.plan_graph(config))


def test_what_a_download_brings_is_not_estimated_before(tmp_path):
    config = composed("+corpus=wiki", "recipe=devlin", "model=base", f"workdir={tmp_path}")
    found = estimates.estimate_stages(config, graph.plan_graph(config))
    assert [str(found[name]) for name in ("prepare", "prepare-512")] == ["(not known before the download)"] * 2


@pytest.mark.slow
def test_an_existing_vocabulary_gives_the_model_its_size(tmp_path):
    def disk(*more):
        words = ["+corpus=sample", "recipe=laptop", "model=tiny", *more]
        config = composed(*words)
        return estimates.estimate_stages(config, graph.plan_graph(config))["train"].disk

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(1019))]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    existing, twice = f"vocab.existing={tmp_path}", disk("vocab.size=2048")
    assert disk(existing) == disk("vocab.size=1024") < twice
    assert disk(existing, "vocab.learn=1024") == twice


def test_the_babylm_recipe_draws_the_curve_of_minimal_pairs_alone():
    nodes = planned("+corpus=sample", "recipe=babylm", "tasks=[blimp,sample_next]", "glue=FOLDER")
    evaluations = [name for name, node in nodes.items() if node.kind == "evaluate"]
    assert evaluations == ["evaluate-blimp", "evaluate-sample_next", "evaluate-curve-blimp"]
    assert "convert-checkpoints" in nodes["evaluate-curve-blimp"].needs
