"""A link of a foreign folder that leads out of it is counted, and not read or copied."""

import json

import pytest

from model.huggingface import sentence_model
from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import ReadLog, open_corpus
from pipeline.readers.files import files_of

MODULES = [{"idx": 0, "path": ""}, {"idx": 1, "path": "1_Pooling"}]


def corpus_of(path):
    return CorpusConfig(name="t", reader="text", path=str(path))


def texts(path):
    reader = open_corpus(corpus_of(path), "")
    found = (d.text for split in reader.splits(1 << 20) for d in reader.read(split, ReadLog()))
    return [text.strip() for text in found]


@pytest.fixture
def hostile(tmp_path):
    """A corpus with links to a file and to a folder elsewhere, straight and by another link."""
    secret = tmp_path / "home" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("hidden")
    top = tmp_path / "corpus"
    (top / "deep").mkdir(parents=True)
    (top / "a.txt").write_text("words")
    (top / "deep" / "b.txt").write_text("more")
    (top / "c.txt").symlink_to("../home/secret.txt")
    (top / "deep" / "d").symlink_to(secret.parent)
    (top / "e.txt").symlink_to("deep/d/secret.txt")
    (top / "f.txt").symlink_to("/nowhere/else.txt")
    return top


@pytest.mark.parametrize("pattern", ["", "/**/*.txt", "/**"])
def test_links_out_of_a_corpus_are_counted_instead_of_read(hostile, pattern, capsys):
    assert texts(f"{hostile}{pattern}") == ["words", "more"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(hostile) in said
    assert "4 links" in said


@pytest.mark.parametrize("pattern", ["*/d/*.txt", "deep/*/secret.txt", "?.txt"])
def test_no_pattern_follows_a_link_that_it_finds(hostile, pattern):
    try:
        assert "hidden" not in texts(f"{hostile}/{pattern}")
    except InputError as error:
        assert error.key == "corpus.path"  # noqa: PT017


def test_links_within_a_corpus_are_followed(tmp_path):
    (tmp_path / "..data").mkdir()  # as Kubernetes mounts a ConfigMap
    (tmp_path / "..data" / "a.txt").write_text("words")
    (tmp_path / "a.txt").symlink_to("..data/a.txt")
    assert texts(tmp_path) == ["words"]


def test_a_link_that_the_user_names_is_followed(hostile, tmp_path):
    assert texts(hostile / "c.txt") == texts(hostile / "deep" / "d") == ["hidden"]
    assert texts(f"{hostile}/deep/d/*.txt") == ["hidden"]
    (tmp_path / "own").symlink_to(hostile)
    assert texts(tmp_path / "own") == ["words", "more"]


def cached(top, files):
    """A snapshot as the hub's client keeps it: each file is a link to a blob."""
    snapshot = top / "models--a--b" / "snapshots" / "0123abc"
    (top / "models--a--b" / "blobs").mkdir(parents=True)
    for name, text in files.items():
        (top / "models--a--b" / "blobs" / text.encode().hex()).write_text(text)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        up = "../" * (2 + name.count("/"))
        (snapshot / name).symlink_to(f"{up}blobs/{text.encode().hex()}")
    return snapshot


def test_a_snapshot_of_the_hubs_cache_is_read_and_copied(tmp_path):
    snapshot = cached(tmp_path / "texts", {"a.txt": "words", "deep/b.txt": "more"})
    assert (texts(snapshot), texts(snapshot / "deep")) == (["words", "more"], ["more"])
    assert len(files_of(corpus_of(f"{snapshot}/*/*.txt"), "", (".txt",))) == 1
    files = {
        "modules.json": json.dumps(MODULES),
        "sentence_bert_config.json": "{}",
        "1_Pooling/config.json": '{"a": 1}',
    }
    snapshot = cached(tmp_path / "model", files)
    (tmp_path / "out").mkdir()
    sentence_model.copy(snapshot, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_text() for name in files} == files
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_a_blobs_folder_that_is_a_link_opens_nothing(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id.txt").write_text("hidden")
    snapshot = cached(tmp_path, {"a.txt": "words"})
    snapshot.joinpath("../../blobs").resolve().rename(tmp_path / "old")
    snapshot.joinpath("../../blobs").resolve().symlink_to(tmp_path / "home")
    (snapshot / "b.txt").symlink_to("../../blobs/id.txt")
    (snapshot / "c.txt").write_text("own")
    assert texts(snapshot) == ["own"]


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/x.json"])
def test_a_file_of_a_foreign_model_that_is_a_link_elsewhere_is_not_copied(tmp_path, name, capsys):
    (tmp_path / "key").write_text("hidden")
    source = tmp_path / "model"
    (source / "1_Pooling").mkdir(parents=True)
    (source / "modules.json").write_text(json.dumps(MODULES))
    (source / "1_Pooling" / "config.json").write_text("{}")
    (source / name).symlink_to(tmp_path / "key")
    (tmp_path / "out").mkdir()
    sentence_model.copy(source, tmp_path / "out")
    copied = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert copied == ["config.json", "modules.json"]
    assert "1 link" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["modules.json", "1_Pooling"])
def test_modules_that_are_links_elsewhere_are_not_copied(tmp_path, name):
    other, source = tmp_path / "other", tmp_path / "model"
    (other / "1_Pooling").mkdir(parents=True)
    (other / "1_Pooling" / "key").write_text("hidden")
    (other / "modules.json").write_text(json.dumps(MODULES))
    source.mkdir()
    (source / name).symlink_to(other / name)
    if name != "modules.json":
        (source / "modules.json").write_text(json.dumps(MODULES))
    (tmp_path / "out").mkdir()
    sentence_model.copy(source, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name in ("key", name)]
