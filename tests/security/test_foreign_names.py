"""A name that others chose is one below the folder that it is for, or is refused."""

import hashlib
import json
import os

import pytest

from benchmarks.small import make_work
from model.config import DataConfig
from model.huggingface import sentence_model
from model.huggingface.bert_format import parts_of
from model.loader.sources import CachedShards
from pipeline.errors import InputError
from pipeline.records.manifest import Manifest
from pipeline.stages import fetch_inputs
from pipeline.storage import file_search
from pipeline.storage.cached_folders import CachedFolder
from tests.security.hostile import hammer, soup
from tests.support import finished, objects
from tests.support.refusals import refused

OUTSIDE = ["../out.txt", "a/../../out.txt", "/tmp/out.txt", "", ".", "..", "a//b", "a/", "a/./b", "a\0b", None, 5]


def manifest_of(files):
    """The manifest of a stage with any names."""
    accounts = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    return json.dumps(vars(finished.manifest("vocab", files=accounts))).encode()


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    with refused(InputError, path="s3://bucket/list") as raised:
        file_search.inside(tmp_path, name, "s3://bucket/list")
    assert "\0" not in str(raised.value)


@pytest.mark.fuzz
def test_any_name_is_below_the_folder_or_refused(tmp_path):
    def check(name):
        try:
            path = file_search.inside(tmp_path, name, "x")
        except InputError:
            return
        assert os.path.abspath(path).startswith(f"{tmp_path}/")

    hammer(check, soup(["..", ".", "/", "//", "a", "~", "\\", "\0"], 8))


@pytest.mark.parametrize("key", ["model/{there}/evil.txt", "model/a/../../../../evil.txt"])
def test_a_listing_writes_nowhere_else(bucket, store, tmp_path, key):
    """Only what fetches by lists: a folder that no stage made."""
    there = tmp_path / "there"
    objects.put(f"{bucket}/model/config.json", b"{}")
    if bucket.startswith("s3"):  # clients of the others do not write such keys
        objects.put(f"{bucket}/{key.format(there=there)}", b"evil")
    else:
        pytest.skip("the client does not write such a key")
    with pytest.raises(InputError):
        fetch_inputs.fetch_input(tmp_path / "mirror" / "deep", f"{bucket}/model", "train")
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize("name", ["../evil.txt", "{there}/evil.txt", "a/../../evil.txt"])
def test_a_manifest_writes_nowhere_else(bucket, store, tmp_path, name):
    named = name.format(there=tmp_path / "there")
    objects.put(f"{bucket}/vocab/manifest.json", manifest_of({named: b"evil"}))
    with refused(InputError, path=f"{bucket}/vocab/manifest.json"):
        fetch_inputs.fetch_input(tmp_path / "mirror", f"{bucket}/vocab", "vocab")
    assert not list(tmp_path.rglob("evil.txt"))


def test_the_sums_of_a_checkpoint_write_nowhere_else(bucket, store, tmp_path):
    group, data = "checkpoints/run/step-00000001", b"evil"
    sums = f"{hashlib.sha256(data).hexdigest()}  ../../../../../evil.txt\n"
    objects.put(f"{bucket}/train/{group}/SHA256SUMS", sums.encode())
    objects.put(f"{bucket}/evil.txt", data)
    copy = CachedFolder(tmp_path / "a" / "b", f"{bucket}/train")
    listed = copy.listed()
    listed[f"{group}/../../../../../evil.txt"] = next(iter(listed.values()))
    with pytest.raises(InputError):
        fetch_inputs.fetch_checkpoint(copy, group, listed)
    assert not list(tmp_path.rglob("evil.txt"))


def test_an_index_of_a_copy_removes_nothing_elsewhere(tmp_path):
    """Its entries are files that a stage which resumes removes where the store has them not."""
    copy = CachedFolder(tmp_path, "s3://bucket/run/train")
    entry = {"size": 1, "mtime_ns": 1, "sha256": "", "etag": ""}
    index = {"sent": "", "entries": {"../../../precious": entry}}
    (tmp_path / "bucket" / "run").mkdir(parents=True)
    (tmp_path / "bucket" / "run" / ".train.index").write_text(json.dumps(index))
    assert copy.entries == CachedFolder(tmp_path, "s3://bucket/run/train").entries == {}


@pytest.mark.parametrize("name", OUTSIDE[:-2])
def test_no_manifest_has_such_names(tmp_path, name):
    (tmp_path / "manifest.json").write_bytes(manifest_of({name: b""}))
    for of_input in (True, False):
        with refused(InputError, path=str(tmp_path / "manifest.json")):
            Manifest.read(tmp_path, of_input=of_input)


def test_the_cache_of_shards_is_named_by_checksums_alone(tmp_path):
    make_work(tmp_path)
    data = tmp_path / "prepare"
    fields = json.loads((data / "manifest.json").read_text())
    for account in fields["files"].values():
        account["sha256"] = "../../evil"
    fields["figures"]["shards"] = {n: {"rows": 1, "tokens": 1} for n in fields["files"]}
    (data / "manifest.json").write_text(json.dumps(fields))
    config = DataConfig(dir=str(data), cache=str(tmp_path / "cache" / "deep"))
    with pytest.raises(InputError, match="evil"):
        CachedShards(config, {str(data): "s3://bucket/prepare"}).shards(str(data), "train")


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_of_weights_names_files_of_its_folder(tmp_path, name):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name, "b": "here.safetensors"}}))
    (tmp_path / "here.safetensors").touch()
    with refused(InputError, path=str(index)):
        parts_of(index)


def test_modules_of_a_foreign_model_are_folders_of_it(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    for name in ("../other", "/etc", "..", 5):
        (source / "modules.json").write_text(json.dumps([{"path": name}]))
        (tmp_path / "out").mkdir(exist_ok=True)
        with refused(InputError, path=str(source / "modules.json")):
            sentence_model.copy(source, tmp_path / "out")
