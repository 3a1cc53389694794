"""An upgrade costs no run: new options leave fingerprints alone, old folders are recognised.

`golden/defaults.json` has every setting with its default, and the version of its stage. A default
that changes, or a setting that goes, changes what runs in progress are; it needs a raised version.
`python -m pytest tests/pipeline/stages/test_fingerprints.py --golden` writes the file again.
"""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from pipeline.config import CorpusConfig, DownloadFile, EvaluateConfig, StageConfig, TaskConfig, TasksConfig
from pipeline.errors import ConfigError, InputError
from pipeline.records.manifest import Result, file_checksums
from pipeline.records.metrics import Conversion, conversion_of
from pipeline.stages import fingerprints, stage
from pipeline.stages.registry import KNOWN, STAGES, type_of
from tests.pipeline.stages.test_stage import settings as old
from tests.support import finished
from tests.support.refusals import refused
from tests.support.runs import configured

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = {
    "download": ["+corpus=simplewiki"],
    "vocab": ["+corpus=sample"],
    "prepare": ["+corpus=sample"],
    "tasks": ["+corpus=sample"],
    "train": ["model=tiny"],
    "convert": [],
    "evaluate": ["+task=sample_next"],
    "report": ["stages=[]"],
    "pairs": ["+corpus=sample"],
    "submit": [],
}


def composed(name, overrides):
    return configured(name, *overrides, "workdir=/nowhere")


def plain(value):
    return json.loads(json.dumps(value, default=dataclasses.asdict))


def test_no_default_changes_without_a_new_version(request):
    path = GOLDEN / "defaults.json"
    now = {
        name: {
            "version": kind.version,
            "defaults": plain(fingerprints.defaults_of(kind.schema)),
            "composed": plain(fingerprints.settings_of(composed(name, COMMANDS[name]))),
        }
        for name, kind in KNOWN.items()
    }
    if request.config.getoption("--golden"):
        path.write_text(json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    golden = json.loads(path.read_text())
    assert now.keys() == golden.keys(), "a stage is new: write the golden file again"
    for name, was in golden.items():
        if now[name]["version"] == was["version"]:
            for kind in ("defaults", "composed"):
                changed = {
                    key: (value, now[name][kind].get(key, "gone"))
                    for key, value in was[kind].items()
                    if key not in now[name][kind] or now[name][kind][key] != value
                }
                assert not changed, f"{name}: raise its version, or keep these {kind}"
        assert now[name] == was, f"{name} has new settings or a version: write the golden file again"


@dataclasses.dataclass(kw_only=True)
class Newer(TasksConfig):
    """The schema of a later release."""

    fresh: int = 5  # an option that it added


def make(config, out):
    (out / "data.txt").write_text(str(config.seed))
    return Result(summary="made", figures={})


def test_a_new_option_at_its_default_changes_no_fingerprint(tmp_path):
    before = fingerprints.fingerprint("tasks", TasksConfig(**old(tmp_path)))
    assert fingerprints.fingerprint("tasks", Newer(**old(tmp_path))) == before
    assert fingerprints.fingerprint("tasks", Newer(**old(tmp_path), fresh=6)) != before


def test_a_folder_of_earlier_code_is_kept_with_a_remark(tmp_path, capsys):
    config = TasksConfig(**old(tmp_path))
    made = stage.run("tasks", config, make)
    older = dataclasses.replace(made, fingerprint="0" * 64, version=0)
    older.write(tmp_path / "made")
    capsys.readouterr()
    assert stage.run("tasks", config, make) == older
    assert "earlier version" in capsys.readouterr().out
    forced = TasksConfig(**old(tmp_path, force=True))
    assert stage.run("tasks", forced, make).version == STAGES["tasks"].version


def test_a_download_is_an_input_where_a_corpus_has_files():
    files = [DownloadFile(url="http://127.0.0.1/a")]
    cases = [
        ({"files": files}, {"source": "d"}),
        ({"files": files, "path": "p"}, {"corpus.path": "p"}),
        ({"parts": {"a": {"path": "p"}, "b": {}}}, {"corpus.parts.a.path": "p"}),
    ]
    for settings, found in cases:
        corpus = CorpusConfig(name="c", reader="books", **settings)
        assert fingerprints.inputs(TasksConfig(corpus=corpus, source="d", out="o")) == found


def test_each_item_of_a_list_is_an_input():
    assert fingerprints.inputs(composed("report", ["stages=[a,b]"])) == {"stages.0": "a", "stages.1": "b"}


@pytest.mark.parametrize("name", ["../dev.tsv", "../d*.tsv", "{}/dev.tsv"])
def test_files_of_a_task_outside_its_folder_are_inputs(tmp_path, name):
    task = TaskConfig(name="x", columns=["a"], metrics=["pearson"], dev=name.format(tmp_path))
    (tmp_path / "data").mkdir()
    config = EvaluateConfig(task=task, data=str(tmp_path / "data"), pretrained="none", out="out")
    before = fingerprints.fingerprint("evaluate", config)[0]
    (tmp_path / "dev.tsv").write_text("a")
    assert fingerprints.fingerprint("evaluate", config)[0] != before


def test_what_is_quick_is_made_again_by_new_code(tmp_path):
    config = composed("report", ["stages=[]", f"out={tmp_path}/made"])
    made = stage.run("report", config, lambda *_: Result(summary="", figures={}))
    dataclasses.replace(made, fingerprint="0" * 64, version=0).write(tmp_path / "made")
    assert fingerprints.recognise("report", config, *fingerprints.fingerprint("report", config)) is None


def side_by_side(top):
    """What `convert checkpoints=marked` leaves, and another folder of a stage."""
    for name in ("chck_1M", "chck_2M", "model"):
        (top / name).mkdir(parents=True)
        (top / name / "config.json").write_text("{}")
    sizes = {"chck_1M": {"step": 3}, "chck_2M": {"step": 6}}
    made = finished.manifest("convert", files=file_checksums(top, {}), figures={"checkpoints": sizes})
    made.write(top)
    return made


def test_checkpoints_in_one_folder_are_inputs_of_their_own(tmp_path):
    top = tmp_path / "convert-checkpoints"
    made = side_by_side(top)
    of = fingerprints.fingerprint_path
    found = [of(top / name) for name in ("chck_1M", "chck_2M")]
    assert len({*found, made.fingerprint}) == 3
    assert of(top) == of(top / "model") == of(f"{top}/model/") == made.fingerprint
    assert conversion_of(top / "chck_2M") == Conversion(step=6)
    # A graph knows them before the folder is there.
    known = {str(top): made.fingerprint}
    names = ("chck_1M", "chck_2M", "model", "")
    assert [fingerprints.fingerprint_to_be(f"{top}/{name}", known) for name in names] == [
        of(top / name) for name in names
    ]
    assert fingerprints.fingerprint_to_be(str(tmp_path / "other"), known) is None


def test_names_of_files_may_be_any_bytes(tmp_path):
    found = set()
    for raw in (b"caf\xe9.txt", b"caf\xe8.txt", "café.txt".encode()):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        path = folder / os.fsdecode(raw)
        path.write_text("text")
        os.utime(path, (1, 1))
        found.add(fingerprints.fingerprint_files(folder))
    assert len(found) == 3


def test_a_corpus_does_not_depend_on_what_readers_leave_out(tmp_path):
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere.txt"
    corpus.mkdir()
    (corpus / "a.txt").write_text("a")
    (corpus / "b.txt").symlink_to("a.txt")
    before = fingerprints.fingerprint_files(corpus)
    assert fingerprints.fingerprint_files(corpus, of_readers=True) == before
    elsewhere.write_text("left out")
    (corpus / "c.txt").symlink_to(elsewhere)
    assert fingerprints.fingerprint_files(corpus) != before, "files of a task are followed"
    assert fingerprints.fingerprint_files(corpus, of_readers=True) == before
    for place in (str(corpus), f"{corpus}/*.txt"):
        settings = TasksConfig(**old(tmp_path) | {"corpus": CorpusConfig(name="c", reader="books", path=place)})
        read = fingerprints.fingerprint("tasks", settings)
        elsewhere.write_text(f"changed {place}")
        assert fingerprints.fingerprint("tasks", settings) == read


@pytest.mark.parametrize("within", ["", "/checkpoints", "/../train"])
def test_a_stage_that_reads_what_it_writes_is_refused(within, tmp_path):
    """Its first start would change the input of the second, which would begin again."""
    config = composed("train", ["model=tiny", f"out={tmp_path}/train", f"start={tmp_path}/train{within}"])
    with refused(InputError, key="start"):
        fingerprints.fingerprint("train", config)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_of_a_recipe_is_of_the_type_that_its_name_begins_with(name):
    assert type_of(name) == type_of(f"{name}-512-long") == name


def test_an_empty_folder_is_refused():
    for key in ("workdir", "out"):
        with refused(ConfigError, key=key):
            StageConfig(**{"workdir": "work", "out": "work/vocab", key: ""})


def test_a_default_of_an_earlier_version_stands(tmp_path):
    words = ["+task=sample_next", f"out={tmp_path}", "data=x", "pretrained=x"]
    usual, typed, other = (composed("evaluate", [*words, f"sequence_length={n}"]) for n in ("null", 128, 64))
    for version, standing in ((4, [True, True, False]), (5, [False, True, False])):
        sources = fingerprints.fingerprint("evaluate", typed)[1]
        finished.manifest("evaluate", version=version, config=plain(typed), inputs=sources).write(tmp_path)
        kept = [fingerprints.recognise("evaluate", one, "f" * 64, sources) for one in (usual, typed, other)]
        assert [one is not None for one in kept] == standing
