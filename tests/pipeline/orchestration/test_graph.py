"""Settings become command lines that Hydra reads back, and folders become edges."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli import conf_files
from pipeline.cli.overrides import quote
from pipeline.errors import ConfigError, UserError
from pipeline.orchestration import compose_run, graph, stage_commands
from pipeline.orchestration.kinds import KINDS
from pipeline.stages import fingerprints
from tests.support import finished
from tests.support.refusals import refused
from tests.support.runs import composed, planned

texts = st.text(st.characters(codec="ascii", min_codepoint=32)) | st.sampled_from(["NULL", "inf"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


@given(values)
def test_a_quoted_value_reads_back(value):
    override = OverridesParser.create().parse_override(f"key={quote(value)}")
    read = override.value()
    assert str(read) == str(value) or read == value


def test_stages_come_after_what_they_need_and_a_cycle_is_named():
    needs = {"c": ("b", "a"), "b": ("a",), "a": (), "d": ()}
    assert graph.sort_topologically(needs) == ["a", "b", "c", "d"]
    with pytest.raises(ConfigError, match="a, b"):
        graph.sort_topologically({"a": ("b",), "b": ("a",)})


def test_what_lies_in_a_stages_folder_is_that_stages(tmp_path):
    """RTE from the model that MNLI left, as in the paper."""
    words = (
        "+stage@stages.evaluate-on=evaluate",
        "+corpus=sample",
        f"workdir={tmp_path}",
        "tasks=[mnli]",
        "glue=glue",
        "evaluate.keep=true",
        "evaluate-on.task=rte",
        f"evaluate-on.pretrained={tmp_path}/evaluate-mnli/model",
    )
    nodes = planned(*words)
    assert nodes["evaluate-on-rte"].needs == ("evaluate-mnli",)
    assert list(nodes)[-1] == "report"
    again = planned(*words, "evaluate.epochs=7")
    assert again["evaluate-on-rte"].fingerprint != nodes["evaluate-on-rte"].fingerprint


def finish(nodes):
    for node in nodes.values():
        Path(node.config.out).mkdir(parents=True)
        finished.manifest(node.kind, fingerprint=node.fingerprint).write(Path(node.config.out))


def test_a_corpus_that_grew_makes_the_model_anew_and_the_plan_says_how_to_go_on(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("Words.")
    words = ["corpus=text", f"corpus.path={tmp_path}/text", "tasks=[]"]
    finish(planned(*words, f"workdir={tmp_path}/old"))
    assert planned(*words, f"workdir={tmp_path}/old")["train"].reason is None
    (tmp_path / "text" / "b.txt").write_text("More words.")
    reason = planned(*words, f"workdir={tmp_path}/old")["train"].reason or ""
    keys = reason.partition("; its model is trained again: to continue from it instead, add ")[2].split()
    nodes = planned(*words, *(key.replace("NEW", f"{tmp_path}/new") for key in keys))
    train, vocab = nodes["train"].config, nodes["vocab"].config
    assert (train.start, train.start_optimizer, train.model.name) == (f"{tmp_path}/old/train", True, "auto")
    assert (train.out, vocab.existing) == (f"{tmp_path}/new/train", f"{tmp_path}/old/vocab")
    assert "anew" not in (nodes["train"].reason or "")
    finish(nodes)
    (tmp_path / "text" / "c.txt").write_text("Still more words.")
    again = planned(*words, *(key.replace("NEW", f"{tmp_path}/new") for key in keys))["train"].reason
    assert f"train.start={tmp_path}/new/train" in (again or "")


def test_a_training_has_no_more_ranks_than_the_run_has_cores(tmp_path):
    words = ("+corpus=sample", f"workdir={tmp_path}", "model.hidden=128", "model.heads=2", "train.batch_size=64")
    node = planned(*words, "train.micro_batch=8")["train"]
    for cores in (1, 2):
        command = stage_commands.stage_command(node, "run.json", None, cores)
        assert command[command.index("--num_accelerators") + 1] == str(cores)


def test_the_parts_of_a_mix_reach_the_stages(tmp_path):
    part = "+corpus@corpus.parts.own=text", f"++corpus.parts.own.path={tmp_path}"
    nodes = planned("+corpus=mix", *part, f"workdir={tmp_path}", "tasks=[]")
    for name in ("vocab", "prepare"):
        assert nodes[name].config.corpus.parts["own"]["reader"] == "text"


def test_a_stages_own_keys_need_not_be_in_the_recipe(root, tmp_path):
    """Nested ones neither; what comes last on the command line counts."""
    words = [
        "train.model.dropout=0.25",
        "train.clip=2.5",
        "+train.schedule.warmup_share=0.3",
        "tasks.dev_rows=1",
        "tasks.dev_rows=7",
        "train.steps=9",
    ]
    nodes = planned("+corpus=sample", f"workdir={tmp_path}", "tasks=[sample_next]", *words)
    by_name = {name: node.config for name, node in nodes.items()}
    train = by_name["train"]
    assert (train.model.dropout, train.clip, train.steps) == (0.25, 2.5, 9)
    assert (train.schedule.warmup_share, train.model.layers) == (0.3, 2)
    assert by_name["tasks"].dev_rows == 7


def test_a_text_of_a_stage_stays_as_typed(tmp_path):
    """Hydra's grammar takes them for numbers and truth values, as the stage's own command knows."""
    words = [
        "vocab.existing=2024_01",
        "train.tracking.project=1e3",
        f"workdir={tmp_path}",
        "evaluate.task.labels=[false,true]",
        "tasks=[sample_next]",
    ]
    nodes = planned("+corpus=sample", *words)
    by_name = {name: node.config for name, node in nodes.items()}
    assert by_name["vocab"].existing == "2024_01"
    assert by_name["train"].tracking.project == "1e3"
    assert by_name["evaluate-sample_next"].task.labels == ["false", "true"]
    for word in words:
        once = compose_run.expand([word])
        assert compose_run.expand(once) == once  # a job reads what the run passes on


def test_stages_that_a_tracker_cannot_read_are_told_before_work_begins(bucket, tmp_path):
    words = [f"workdir={bucket}/run", f"mirror={tmp_path}", "report.tracking=wandb"]
    with refused(ConfigError, "tracking=wandb", key="report.tracking"):
        planned("+corpus=sample", *words)


def test_a_stage_is_forced_in_either_way(tmp_path):
    both = ["force=[prepare]", "--force", "train", f"workdir={tmp_path}"]
    assert composed_run(*both).force == ["prepare", "train"]


def composed_run(*words):
    """What `pipeline.run +corpus=sample` reads of its command line."""
    return composed("+corpus=sample", *words)


def test_every_stage_finds_yaml_files_of_ones_own(tmp_path):
    own = tmp_path / "my conf"
    for group, name, theirs in (("corpus", "mine", "text"), ("task", "stars", "own")):
        (own / group).mkdir(parents=True)
        content = (conf_files.CONF / group / f"{theirs}.yaml").read_text()
        content = content.replace(f"name: {theirs}", f"name: {name}")
        (own / group / f"{name}.yaml").write_text(content)
    (tmp_path / "a.txt").write_text("Words.")
    words = [
        "--config-dir",
        str(own),
        "corpus=mine",
        f"corpus.path={tmp_path}/a.txt",
        f"workdir={tmp_path}/work",
        "tasks=[stars]",
        f"glue={tmp_path}",
    ]
    found = {name: node.config for name, node in planned(*words).items()}
    assert found["prepare"].corpus.name == "mine"
    assert found["evaluate-stars"].task.name == "stars"


def test_every_key_of_a_recipe_of_ones_own_counts(tmp_path):
    wanted = {
        "workdir": "elsewhere",
        "mirror": "copies",
        "steps": 7,
        "tasks": ["sample_next"],
        "glue": "files",
        "seed": 3,
        "seeds": [3, 4],
        "dry_run": True,
        "estimate_gpu": "H100",
        "estimate_mfu": 0.3,
        "recipe": "mine",
    }
    (tmp_path / "recipe").mkdir()
    lines = ["# @package _global_", "defaults: [laptop, _self_]", *(f"{k}: {json.dumps(v)}" for k, v in wanted.items())]
    (tmp_path / "recipe" / "mine.yaml").write_text("\n".join(lines))
    config = composed_run("--config-dir", str(tmp_path), "recipe=mine")
    assert {key: getattr(config, key) for key in wanted} == wanted
    typed = composed_run("--config-dir", str(tmp_path), "recipe=mine", "workdir=typed", "tasks=[sample_order]")
    assert (typed.workdir, typed.tasks, typed.steps) == ("typed", ["sample_order"], 7)


def mistake_of(*words):
    config = composed_run(*words)
    with pytest.raises(UserError) as caught:
        graph.check_places(config, graph.plan_graph(config))
    return caught.value


def test_what_a_stage_would_not_find_is_told_before_work_begins(tmp_path):
    workdir, gone = f"workdir={tmp_path}/work", f"{tmp_path}/gone/*.txt"
    error = mistake_of(workdir, "corpus.reader=text", f"corpus.path={gone}")
    assert (error.key, error.value) == ("corpus.path", gone)
    assert str(error).startswith("stage vocab: ")
    error = mistake_of(workdir, "tasks=[cola]", f"glue={tmp_path}/glue")
    assert (error.key, error.value) == ("data", f"{tmp_path}/glue")
    assert str(error).startswith("stage evaluate-cola: ")


@pytest.mark.parametrize(("task", "file"), [("cola", "CoLA/train.tsv"), ("ewok", "CoLA/a.jsonl")])
def test_a_task_without_its_files_is_told_before_work_begins(tmp_path, task, file):
    words = [f"workdir={tmp_path}/work", f"tasks=[{task}]", f"glue={tmp_path}/glue", "evaluate.task.folder=../CoLA"]
    (tmp_path / "glue").mkdir()
    error = mistake_of(*words)
    assert error.key == "data"
    assert str(error).startswith(f"stage evaluate-{task}: data={tmp_path}/glue: ")
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text("gj04\t1\t\tThe sailors rode the breeze.\n")
    if task == "cola":
        assert "dev.tsv" in str(mistake_of(*words))
        (tmp_path / "CoLA" / "dev.tsv").write_text("gj04\t1\tThe sailors rode.\n")
        error = mistake_of(*words)
        assert str(error).startswith("stage evaluate-cola: ")
        assert "dev.tsv" in str(error), "its rows have no text"
        (tmp_path / "CoLA" / "dev.tsv").write_text("gj04\t1\t\tThe sailors rode.\n")
    config = composed_run(*words)
    graph.check_places(config, graph.plan_graph(config))


def test_a_training_without_its_shards_is_told_before_work_begins(tmp_path):
    words = [f"workdir={tmp_path}/work", "train.tracking=none"]
    (tmp_path / "new").mkdir()
    for key in ("data.more", "data.validation"):
        error = mistake_of(*words, f"train.{key}=[{tmp_path}/new]")
        assert (error.key, error.value) == (f"train.{key}", f"{tmp_path}/new"), "a folder, but none of shards"
    error = mistake_of(*words, "tasks=[]", "prepare.validation_share=0")
    assert error.key == "prepare.validation_share"
    assert "train.data.validation" in str(error)
    finished.manifest("prepare").write(tmp_path / "new")
    config = composed_run(*words, "tasks=[]", "prepare.validation_share=0", f"train.data.validation=[{tmp_path}/new]")
    graph.check_places(config, graph.plan_graph(config))


def test_shards_without_the_pairs_of_the_objective_are_told_before_work_begins(tmp_path):
    words = [f"workdir={tmp_path}/work", "tasks=[]", "prepare.pairs=none"]
    with pytest.raises(UserError, match=r"pairs=nsp, or set train\.objective\.next_sentence=false") as caught:
        graph.plan_graph(composed_run(*words))
    assert caught.value.key == "train.objective"
    graph.plan_graph(composed_run(*words, "train.objective.next_sentence=false"))


def test_a_place_that_cannot_be_written_is_told_before_work_begins(tmp_path):
    (tmp_path / "file").touch()
    for place in (f"{tmp_path}/file/work", "/proc/work"):
        error = mistake_of(f"workdir={place}")
        assert (error.key, error.value) == ("workdir", place)


def test_a_key_that_training_would_lack_is_missed_before_work_begins(tmp_path, monkeypatch):
    """Where the stages run on this machine; a job's machine may have it."""
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    config = composed_run("train.tracking.mode=online", f"workdir={tmp_path}/work")
    with refused(ConfigError, key="train.tracking.mode", value="online"):
        graph.check_places(config, nodes := graph.plan_graph(config))
    config.executor.name = "slurm"
    graph.check_places(config, nodes)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    config.executor.name = "local"
    graph.check_places(config, nodes)


def test_a_driver_in_a_pod_would_start_over_whenever_it_restarts(tmp_path):
    with refused(ConfigError, key="force"):
        planned("+corpus=sample", f"workdir={tmp_path}", "force=[train]", "executor=kubernetes")


def test_looking_at_places_leaves_none_behind(tmp_path):
    config = composed_run(f"workdir={tmp_path}/a/work")
    graph.check_places(config, graph.plan_graph(config))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("chosen", "made"), [("[]", False), ("[cola]", False), ("[cola,sample_next]", True)])
def test_sample_tasks_are_made_for_those_who_ask_for_some(tmp_path, chosen, made):
    config = composed_run(f"workdir={tmp_path}", f"tasks={chosen}", "glue=glue")
    names = {node.name for node in graph.plan_graph(config)}
    assert ("tasks" in names) == made


def test_each_language_has_a_folder_of_its_own():
    config = composed("+corpus=wiki", "corpus.language=vi")
    assert (config.corpus.name, config.workdir) == ("viwiki", "work/viwiki")
    assert "/viwiki/latest/viwiki-latest-" in config.corpus.files[0].url


def test_another_corpus_in_the_same_folder_is_told_in_a_few_words():
    address = [{"url": "https://example.org/" + "x" * 90}]
    changed = {
        "corpus.name": ("viwiki", "sample"),
        "corpus.language": ("vi", "en"),
        "corpus.files": (address, []),
        "size": (9, 99),
    }
    told = fingerprints.differences(changed)
    assert told == "corpus viwiki (vi) -> sample (en); size 9 -> 99"
    told = fingerprints.differences({"corpus.files": (address, [])})
    assert len(told) < 80


def test_a_file_that_only_looks_changed_is_told_as_such(tmp_path):
    """Size and time stamp stand for the content of a dump of many gigabytes."""
    (tmp_path / "a.txt").write_text("words")
    words = [f"workdir={tmp_path}", "corpus.reader=text", f"corpus.path={tmp_path}/a.txt"]
    config = composed_run(*words)
    (tmp_path / "vocab").mkdir()

    def reason():
        vocab = graph.plan_graph(config)[0]
        return vocab.reason

    vocab = graph.plan_graph(config)[0]
    fingerprint, inputs = fingerprints.fingerprint("vocab", vocab.config)
    finished.manifest("vocab", fingerprint=fingerprint, inputs=inputs).write(tmp_path / "vocab")
    assert reason() is None
    os.utime(tmp_path / "a.txt", (0, 0))
    changed = reason()
    assert "corpus.path" in changed
    assert "time stamp" in changed


def test_a_training_of_other_settings_is_named_with_its_step(tmp_path):
    settings = planned("+corpus=sample", f"workdir={tmp_path}")["train"].config
    assert KINDS["train"].first_step(settings, "a" * 64, {}) == (0, "")
    for name in (f"{'b' * 12}/step-00000734", f"{'a' * 12}/step-00001000"):
        (tmp_path / "train" / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "train" / "checkpoints" / ("b" * 12) / "step-00000734" / "SHA256SUMS").touch()
    done, told = KINDS["train"].first_step(settings, "a" * 64, {})
    assert done == 0
    assert "after step 734" in told
    assert "starts at step 0" in told
    assert KINDS["train"].first_step(settings, "b" * 64, {}) == (734, "; resumes after step 734")
    (tmp_path / "train" / "checkpoints" / ("a" * 12) / "step-00001000" / "SHA256SUMS").touch()
    assert KINDS["train"].first_step(settings, "a" * 64, {}) == (1000, "; resumes after step 1,000")


@pytest.mark.parametrize("absolute", [False, True])
def test_a_report_keeps_what_was_made_from_the_stages_of_its_run(tmp_path, monkeypatch, capsys, absolute):
    """A task and a conversion of one's own; not those of a model that is another one by now."""
    monkeypatch.chdir(tmp_path)
    words = ["workdir=work", "tasks=[]"]

    def stages_of_report():
        config = graph.plan_graph(composed_run(*words))[-1].config
        return [Path(place).name for place in config.stages]

    recipe = stages_of_report()
    convert = next(node for node in graph.plan_graph(composed_run(*words)) if node.name == "convert")
    model = str(tmp_path / "work/convert") if absolute else "work/convert"
    for name, kind, key, read, fingerprint in (
        ("evaluate-own", "evaluate", "pretrained", model, convert.fingerprint),
        ("convert-bf16", "convert", "train", model, convert.fingerprint),
        ("evaluate-bf16", "evaluate", "pretrained", "work/convert-bf16", "of convert-bf16"),
        ("evaluate-old", "evaluate", "pretrained", model, "of a former model"),
        ("evaluate-base", "evaluate", "pretrained", "other/model", "of another model"),
        ("train-seed7", "train", "data.dir", "work/prepare", "p"),
    ):
        (tmp_path / "work" / name).mkdir(parents=True)
        finished.manifest(
            kind, fingerprint=f"of {name}", config={key: read}, inputs={key: fingerprint, "data": "d"}
        ).write(tmp_path / "work" / name)
    own = ["convert-bf16", "evaluate-bf16", "evaluate-own"]
    capsys.readouterr()
    assert stages_of_report() == [*recipe, *own]
    assert capsys.readouterr().out.startswith("work/evaluate-old is of another model")


def test_sample_tasks_are_of_what_prepare_holds_out(tmp_path):
    stages = composed("+corpus=sample", "prepare.validation_share=0.05").stages
    assert [stages[name].validation_share for name in ("prepare", "tasks")] == [0.05, 0.05]
    with refused(ConfigError, key="tasks.validation_share"):
        planned("+corpus=sample", "tasks.validation_share=0.2")
    (tmp_path / "recipe").mkdir()
    added = "defaults: [laptop, /stage@stages.prepare-new: prepare, _self_]"
    (tmp_path / "recipe" / "mine.yaml").write_text(f"# @package _global_\n{added}\nrecipe: mine\n")
    words = ["--config-dir", str(tmp_path), "recipe=mine", "+corpus=sample", "prepare-new.validation_share=0.02"]
    planned(*words, "train.data.validation=[${workdir}/prepare-new]")
    with refused(ConfigError, key="tasks.validation_share"):
        planned(*words, "train.data.more=[${workdir}/prepare-new]")


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("evaluate.sequence_length=128", "evaluate-sample_order.sequence_length"),
        ("convert.ema=true", "convert.ema"),
        ("convert.average=3", "convert.average"),
        ("convert.average=3 train.keep=3 train.steps=90 train.save_every=50", "convert.average"),
    ],
)
def test_what_a_stage_would_refuse_of_another_is_refused_by_the_plan(word, key):
    with refused(ConfigError, key=key):
        planned("+corpus=sample", *word.split(), "workdir=new")
    assert planned("+corpus=sample", word.split()[0], "train.ema=0.9", "model.positions=128", "train.keep=3")


def test_a_model_has_a_position_for_each_token_of_a_sequence():
    with refused(ConfigError, key="train.model.positions"):
        planned("+corpus=sample", "model.positions=32", "workdir=new")


@pytest.mark.parametrize("finished_there", [True, False])
def test_a_recipe_that_leaves_positions_open_takes_a_training_of_more(tmp_path, finished_there):
    words = ("+corpus=sample", f"workdir={tmp_path}", "tasks=[sample_next]")
    node = planned(*words, "model.positions=512")["train"]
    step = tmp_path / "train/checkpoints" / node.fingerprint[:12] / "step-00001000"
    step.mkdir(parents=True)
    (step / "SHA256SUMS").touch()
    (step / "state.json").write_text(json.dumps(asdict(finished.state(1000, model={"positions": 512}))))
    if finished_there:
        made = finished.manifest("train", config=asdict(node.config))
        replace(made, fingerprint=node.fingerprint).write(tmp_path / "train")
    now = planned(*words)["train"]
    assert (now.config.model.positions, now.fingerprint) == (512, node.fingerprint)
    assert (now.reason is None, now.done) == ((True, 0) if finished_there else (False, 1000))
    assert planned(*words, "train.seed=7")["train"].config.model.positions == 0, "no training of it is there"


def test_a_mode_that_wandb_does_not_know_is_refused_by_the_plan(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "ofline")
    with refused(ConfigError, key="tracking.mode"):
        planned("+corpus=sample")
    assert planned("+corpus=sample", "train.tracking.mode=offline")
