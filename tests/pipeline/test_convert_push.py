"""Checkpoints on the hub as revisions: the real client, a server of the hub on this machine."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.training import checkpoint
from pipeline import convert, run
from pipeline.config import ConvertConfig, CorpusConfig, ExecutorConfig, RunConfig
from pipeline.errors import ConfigError, InputError, Restart
from pipeline.orchestration.kinds import KINDS
from pipeline.records import checkpoint_folder
from pipeline.storage.checksums import sha256
from pipeline.storage.stores import retries
from tests.pipeline.test_convert import SIZES, make_vocabulary, manifest
from tests.support import finished
from tests.support.refusals import refused
from tests.support.runs import configured, planned
from tests.support.servers.hub_server import environment, server

MARKED = {"chck_0M": 0, "chck_1M": 4, "chck_2.5M": 8}  # names and steps
STEPS = (0, 4, 6, 8, 9)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training with checkpoints, some of them kept for their words."""
    top = tmp_path_factory.mktemp("trained")
    vocab = make_vocabulary(top / "vocab", "abcdefgh")
    (top / "train").mkdir()
    manifest(top / "train", "train", config={"data": {"dir": str(top)}}, figures={"steps": 9})
    config = ModelConfig(name="small", vocab_size=13, local_window=8, **SIZES)
    marks = {0: 0.0, 4: 1e6, 8: 2.5e6}
    for step in STEPS:
        torch.manual_seed(step)
        tokenizer = sha256(vocab / "tokenizer.json")
        state = finished.state(step, model=dataclasses.asdict(config), tokenizer=tokenizer, mark=marks.get(step))
        weights = build_model(config).state_dict()
        checkpoint.write(top / "train" / checkpoint_folder.RUNS / ("t" * 12), state, weights, {})
    return top


@pytest.fixture
def hub(tmp_path):
    with server() as made, environment(made, str(tmp_path / "home")) as patch:
        made.token = "hf_right"
        patch.setenv("HF_TOKEN", "hf_right")
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        patch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        yield made


def settings(trained, out, **more):
    places = {name: str(trained / name) for name in ("train", "vocab")} | {"out": str(out / "convert")}
    return ConvertConfig(workdir=str(out), push="me/model", **places, **more)


def steps_of(hub):
    """The step whose weights each branch has, found by their bytes."""
    found = {}
    for branch, files in hub.models.repositories["me/model"].items():
        weights = load(files["model.safetensors"])
        name = next(name for name in weights if name.endswith("word_embeddings.weight"))
        for step in STEPS:
            torch.manual_seed(step)
            config = ModelConfig(name="small", vocab_size=13, local_window=8, **SIZES)
            state = build_model(config).state_dict()
            if any(torch.equal(weights[name], one) for one in state.values()):
                found[branch] = step
    return found


def puts(hub):
    return sum(method == "PUT" for method, _, _ in hub.requests)


def test_chosen_checkpoints_become_revisions_that_are_whole_models(trained, hub, tmp_path):
    config = settings(trained, tmp_path, push_revisions=["marked", "step-6"])
    convert.run(config)
    assert steps_of(hub) == {"main": 9, "step-6": 6} | MARKED
    branches = hub.models.repositories["me/model"]
    for files in branches.values():
        assert files.keys() == branches["main"].keys()
        assert {"config.json", "tokenizer.json", "README.md"} <= files.keys()
        assert "manifest.json" not in files

    # Nothing is sent twice, and what a branch has too much of is removed.
    branches["chck_1M"]["model-00001-of-00002.safetensors"] = b"old"
    commits, sent = hub.models.commits, puts(hub)
    convert.run(config)
    assert (hub.models.commits, puts(hub)) == (commits + 1, sent)
    assert branches["chck_1M"].keys() == branches["main"].keys()
    assert not list(tmp_path.glob(".push-*"))


@pytest.mark.slow
def test_a_finished_run_uploads_its_model_when_asked_later(trained, hub, tmp_path):
    places = {name: str(trained / name) for name in ("train", "vocab")}
    settings = ConvertConfig(workdir=str(tmp_path / "work"), out=str(tmp_path / "work" / "convert"), **places)
    corpus = CorpusConfig(name="text", reader="text", path=".")
    rest = {"recipe": "one", "stages": {"convert": settings}, "executor": ExecutorConfig(), "cores": 1}
    config = RunConfig(workdir=str(tmp_path / "work"), corpus=corpus, **rest)
    run.execute(config)
    made = (tmp_path / "work" / "convert" / "manifest.json").read_bytes()
    assert not hub.models.repositories
    settings.push = "me/model"
    for _ in range(2):
        run.execute(config)
        assert (hub.models.repositories["me/model"].keys(), hub.models.commits) == ({"main"}, 1)
    assert (tmp_path / "work" / "convert" / "manifest.json").read_bytes() == made


def test_all_checkpoints_have_one_name(trained, hub, tmp_path):
    convert.run(settings(trained, tmp_path, push_revisions=["all"]))
    assert steps_of(hub) == {"main": 9, "step-6": 6, "step-9": 9} | MARKED


def test_a_checkpoint_that_is_missing_is_named_before_anything_is_sent(trained, hub, tmp_path):
    with refused(ConfigError, "step-9", key="push_revisions"):
        convert.run(settings(trained, tmp_path, push_revisions=["marked", "step-7"]))
    assert not hub.models.repositories


@pytest.mark.slow
@pytest.mark.parametrize("fault", [(429, {"Retry-After": "1"}), (503, {})], ids=str)
def test_a_limited_rate_is_waited_for(trained, hub, tmp_path, fault):
    seen = set()

    def once(path, number):
        first = path not in seen
        seen.add(path)
        return fault if first else None

    hub.fault = once
    convert.run(settings(trained, tmp_path, push_revisions=["chck_0M"]))
    assert steps_of(hub) == {"main": 9, "chck_0M": 0}


@pytest.mark.parametrize("path", ["/preupload/", "/lfs/", "/commit/"])
def test_a_hub_that_stays_away_asks_for_a_restart_which_goes_on_where_it_was(trained, hub, tmp_path, path, monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    hub.fault = lambda asked, number: (503, {}) if path in asked else None
    config = settings(trained, tmp_path)
    with pytest.raises(Restart, match="me/model"):
        convert.run(config)
    hub.fault = lambda asked, number: None
    convert.run(config)
    assert steps_of(hub) == {"main": 9}


def test_a_client_that_asks_again_after_a_whole_wait_waits_no_second_time(monkeypatch):
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "0.5")
    outage = []
    asked = []

    def request():
        asked[-1] += 1
        raise retries.Again("503")

    for _ in range(2):
        asked.append(0)
        with pytest.raises(Restart):
            retries.until_answered("hub", "hub", "", request, outage)
    assert asked[0] > 1
    assert asked[1] == 1
    assert retries.until_answered("hub", "hub", "", lambda: "answer", outage) == "answer"
    assert not outage


@pytest.mark.parametrize("name", ["acme", "a/b/c", "/b", "a/", "https://huggingface.co/a/b"])
def test_what_is_no_repository_is_refused_before_any_work(name):
    with refused(ConfigError, "OWNER/NAME", key="push"):
        configured("convert", f"push={name}")


def test_a_plan_lists_the_files_that_it_would_send(tmp_path):
    words = ["corpus=text", f"corpus.path={tmp_path}", f"workdir={tmp_path}/work", "tasks=[]", "convert.push=me/model"]
    node = planned(*words)["convert"]
    assert "config.json" in (KINDS["convert"].with_push(node).reason or "")
    Path(node.config.out).mkdir(parents=True)
    for file in ("README.md", "model.safetensors", "manifest.json"):
        (Path(node.config.out) / file).touch()
    done = KINDS["convert"].with_push(dataclasses.replace(node, reason=None)).reason
    assert done == "uploads to me/model (private if new): README.md, model.safetensors"


@pytest.mark.store
def test_a_model_in_a_store_is_pushed_from_there(trained, hub, bucket, tmp_path):
    for mirror in ("a", "b"):  # on the second machine it is up to date
        config = settings(trained, tmp_path, push_revisions=["chck_1M"])
        config.out, config.mirror = f"{bucket}/run/convert", str(tmp_path / mirror)
        convert.run(config)
        assert steps_of(hub) == {"main": 9, "chck_1M": 4}
    assert hub.models.commits == 2


def test_an_expired_token_is_one_line(trained, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    with refused(InputError, "HF_TOKEN", key="push") as caught:
        convert.run(settings(trained, tmp_path))
    assert "hf_expired" not in str(caught.value)
