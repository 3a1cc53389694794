"""A stage leaves the old folder or the new one, and is made again only when something changed."""

import errno
import fcntl
import os

import pytest

from pipeline.config import CorpusConfig, TasksConfig
from pipeline.errors import ConfigError, InputError, Restart
from pipeline.records.manifest import MANIFEST, Result, file_checksums, require_manifest
from pipeline.stages import fingerprints, stage
from pipeline.storage.checksums import sha256
from tests.support import finished
from tests.support.refusals import refused


def settings(tmp_path, **changes):
    (tmp_path / "text").mkdir(exist_ok=True)
    corpus = CorpusConfig(name="c", reader="books", path=str(tmp_path / "text"))
    return {"corpus": corpus, "source": str(tmp_path / "download"), "out": str(tmp_path / "made"), **changes}


def config(tmp_path, **changes):
    return TasksConfig(**settings(tmp_path, **changes))


class Maker:
    """Counts how often it is asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self, config, out):
        self.calls += 1
        (out / "data.txt").write_text(f"{config.seed} {self.calls}")
        return Result(summary="made", figures={"calls": self.calls})


def broken(config, out):
    (out / "data.txt").write_text("half")
    raise InputError("the input is broken")


@pytest.mark.parametrize("out", ["", ".", "/", "..", "a/..", "../.."])
def test_a_place_that_cannot_be_replaced_is_refused(tmp_path, out):
    make = Maker()
    with refused(ConfigError, key="out"):
        stage.run("tasks", config(tmp_path, out=out), make)
    assert make.calls == 0


def test_a_finished_stage_is_skipped(tmp_path):
    make = Maker()
    first = stage.run("tasks", config(tmp_path), make)
    assert stage.run("tasks", config(tmp_path), make) == first
    assert make.calls == 1
    assert first.files["data.txt"]["sha256"] == sha256(tmp_path / "made" / "data.txt")


@pytest.mark.parametrize("change", [{"seed": 1}, {"force": True}, {"train_rows": 7}])
def test_a_changed_setting_makes_it_again(tmp_path, change, capsys):
    make = Maker()
    stage.run("tasks", config(tmp_path), make)
    assert "will replace" not in capsys.readouterr().out
    stage.run("tasks", config(tmp_path, **change), make)
    assert (f"as these differ: {next(iter(change))} " in capsys.readouterr().out) == ("force" not in change)
    assert make.calls == 2


@pytest.mark.parametrize(("there", "left"), [("", set()), ("run", set()), ("run/a", {".made.lock"})])
def test_a_mistake_in_a_new_folder_leaves_no_trace(tmp_path, there, left):
    mistaken = config(tmp_path, out=str(tmp_path / "run" / "a" / "made"))
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = {*tmp_path.rglob("*")}
    with refused(InputError):
        stage.run("tasks", mistaken, broken)
    assert {path.name for path in {*tmp_path.rglob("*")} - before} == left
    assert before <= {*tmp_path.rglob("*")}


def test_what_a_forced_stage_did_not_make_stays(tmp_path):
    made = tmp_path / "made"
    stage.run("tasks", config(tmp_path), Maker())
    (made / "notes").mkdir()
    (made / "notes" / "mine.txt").write_text("mine")
    with refused(InputError, "not created", key="out"):
        stage.run("tasks", config(tmp_path, force=True), Maker())
    assert [path.name for path in made.rglob("*")] == ["notes", "mine.txt"]


def test_a_failure_leaves_the_old_folder_whole(tmp_path):
    stage.run("tasks", config(tmp_path), Maker())
    with pytest.raises(InputError):
        stage.run("tasks", config(tmp_path, seed=1), broken)
    assert (tmp_path / "made" / "data.txt").read_text() == "0 1"
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def cut_off(config, out):
    raise Restart("lost the others")


def mistaken(config, out):
    raise ConfigError("not supported", "seed", config.seed)


@pytest.mark.parametrize(
    ("fail", "error", "stays"), [(mistaken, ConfigError, True), (broken, InputError, False), (cut_off, Restart, False)]
)
def test_a_mistake_leaves_a_finished_folder_of_a_stage_that_resumes(fail, error, stays, tmp_path):
    """But not where a file of it was written again, or work was done."""
    make = Maker()
    stage.run("tasks", config(tmp_path), make, in_place=True)
    with pytest.raises(error):
        stage.run("tasks", config(tmp_path, seed=1), fail, in_place=True)
    stage.run("tasks", config(tmp_path), make, in_place=True)
    assert make.calls == 2 - stays
    assert [path.name for path in (tmp_path / "made").iterdir() if path.name.startswith(".")] == []


def test_two_runs_into_one_folder_are_refused(tmp_path):
    with (
        stage.lock_folder(tmp_path / "made"),
        refused(InputError, "another run", key="out", value=str(tmp_path / "made")),
    ):
        stage.run("tasks", config(tmp_path), Maker())


def test_a_file_system_without_locks_is_not_another_run(tmp_path, monkeypatch):
    """As Lustre is where it is mounted without the option `flock`."""

    def no_locks(file, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with refused(InputError, "flock", key="out", value=str(tmp_path / "made")) as error:
        stage.run("tasks", config(tmp_path), Maker())
    assert "another run" not in str(error.value)


def test_a_damaged_manifest_is_named(tmp_path):
    stage.run("tasks", config(tmp_path), Maker())
    (tmp_path / "made" / "manifest.json").write_text("{")
    with refused(InputError, path=str(tmp_path / "made" / "manifest.json")):
        stage.run("tasks", config(tmp_path), Maker())


@pytest.mark.parametrize("text", ['{"name": "an app"}', "[]", '{"format": 5}'])
def test_the_manifest_of_another_program_is_a_file_like_any_other(tmp_path, text):
    """In the folder of an input, and above it."""
    make = Maker()
    made = config(tmp_path)
    for folder in (tmp_path / "text", tmp_path):
        (folder / MANIFEST).write_text(text)
    assert stage.run("tasks", made, make) == stage.run("tasks", made, make)
    assert make.calls == 1
    (tmp_path / "text" / MANIFEST).write_text(f"{text} ")
    stage.run("tasks", made, make)
    assert make.calls == 2


@pytest.mark.parametrize(
    ("text", "advised"), [('{"name": "an app"}', False), ("<>", False), ('{"format": "manifest/1"}', True)]
)
def test_only_what_a_stage_wrote_is_to_be_deleted(tmp_path, text, advised):
    out = tmp_path / "made"
    out.mkdir()
    (out / MANIFEST).write_text(text)
    with refused(InputError, path=str(out / MANIFEST)) as error:
        stage.run("tasks", config(tmp_path), Maker())
    assert ("delete" in str(error.value)) == advised


def test_a_missing_input_says_which_stage_makes_it(tmp_path):
    with refused(InputError, r"pipeline\.vocab", key="vocab", value=str(tmp_path / "vocab")):
        require_manifest(tmp_path / "vocab", "vocab", "vocab")


def test_an_input_of_another_stage_is_refused(tmp_path):
    stage.run("tasks", config(tmp_path), Maker())
    with refused(InputError, "by tasks", key="vocab", value=str(tmp_path / "made")):
        require_manifest(tmp_path / "made", "vocab", "vocab")


def test_what_a_stage_did_not_make_is_never_replaced(tmp_path):
    home = tmp_path / "made"
    home.mkdir()
    stage.run("tasks", config(tmp_path), Maker())  # an empty folder is nobody's
    with refused(InputError, "output of tasks", key="out", value=str(home)):
        stage.run("vocab", config(tmp_path), Maker())
    (home / "manifest.json").unlink()
    with pytest.raises(InputError, match="not created"):
        stage.run("tasks", config(tmp_path), Maker())
    assert (home / "data.txt").read_text() == "0 1"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_link_stays_one_to_the_folder_made(tmp_path, in_place):
    make, disk = Maker(), tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "made").symlink_to(disk / "new" / "big")
    for calls in (1, 2, 3):
        stage.run("tasks", config(tmp_path, force=True), make, in_place=in_place)
        assert (tmp_path / "made").is_symlink()
        assert (disk / "new" / "big" / "data.txt").read_text() == f"0 {calls}"
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "made", "text", ".made.lock"}
    stage.run("tasks", config(tmp_path), make)
    assert make.calls == 3


def test_a_link_left_of_a_replaced_folder_goes_and_its_target_stays(tmp_path):
    make = Maker()
    stage.run("tasks", config(tmp_path), make)
    (tmp_path / "big").mkdir()
    (tmp_path / ".made.old").symlink_to(tmp_path / "big")
    stage.run("tasks", config(tmp_path, force=True), make)
    assert (tmp_path / "made" / "data.txt").read_text() == "0 2"
    assert not (tmp_path / ".made.old").is_symlink()
    assert (tmp_path / "big").is_dir()


def test_a_file_is_never_replaced_by_a_folder(tmp_path):
    (tmp_path / "made").write_text("letters")
    for in_place in (False, True):
        with refused(InputError, "is a file", value=str(tmp_path / "made")):
            stage.run("tasks", config(tmp_path), Maker(), in_place=in_place)
    assert (tmp_path / "made").read_text() == "letters"


def test_a_part_of_a_finished_folder_has_the_fingerprint_of_its_stage(tmp_path):
    made = tmp_path / "made"
    (made / "model").mkdir(parents=True)
    (made / "model" / "weights").write_text("1")
    (made / "table.tsv").write_text("1")
    finished.manifest("evaluate", files=file_checksums(made, {})).write(made)
    assert fingerprints.fingerprint_path(made / "model") == "e" * 64
    assert fingerprints.fingerprint_path(made / "table.tsv") == "e" * 64
    (made / "table.tsv").write_text("2")
    assert fingerprints.fingerprint_path(made / "model") == "e" * 64
    assert fingerprints.fingerprint_path(made / "table.tsv") != "e" * 64
    (made / "other").mkdir()
    assert fingerprints.fingerprint_path(made / "other") != "e" * 64


def test_a_crash_between_the_renames_is_mended(tmp_path):
    make = Maker()
    stage.run("tasks", config(tmp_path), make)
    (tmp_path / "made").rename(tmp_path / ".made.old")
    stage.run("tasks", config(tmp_path), make)
    assert make.calls == 1
    assert (tmp_path / "made" / "data.txt").exists()
