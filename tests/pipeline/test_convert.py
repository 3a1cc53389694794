import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, BertConfig
from transformers import BertForPreTraining as Theirs
from transformers import pipeline as hub

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format, logits, onnx_export, sentence_model, vocabulary
from model.training import checkpoint, initial_weights
from pipeline import convert, evaluate
from pipeline.config import ConvertConfig, EvaluateConfig, TaskConfig
from pipeline.errors import ConfigError, InputError
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from pipeline.shards import ShardInfo, write_shard
from pipeline.stages import stage
from pipeline.storage.checksums import sha256
from pipeline.tokenization.wordpiece import WordPiece
from tests.support import finished, forked
from tests.support.refusals import refused

SIZES = {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "positions": 40}


def manifest(folder, name, **fields):
    """A finished stage, as `stage.run` would leave it."""
    finished.manifest(name, **fields).write(folder)


def make_vocabulary(folder, words):
    folder.mkdir()
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    manifest(folder, "vocab")
    return folder


@pytest.fixture
def run(tmp_path, request):
    """A trained run of three folders: its convert configuration. BERT, or the parameter's kind."""
    kind = getattr(request, "param", "bert")
    vocab = make_vocabulary(tmp_path / "vocab", "abcdefgh")
    (tmp_path / "prepare").mkdir()
    manifest(tmp_path / "prepare", "prepare", config={"corpus": {"name": "letters"}})
    (tmp_path / "train").mkdir()
    data = {"dir": str(tmp_path / "prepare")}
    manifest(tmp_path / "train", "train", config={"data": data}, figures={"steps": 7})
    config = ModelConfig(name="small", vocab_size=13, architecture=kind, local_window=8, initializer_range=0.1, **SIZES)
    torch.manual_seed(0)
    weights = build_model(config).state_dict()
    tokenizer = sha256(vocab / "tokenizer.json")
    state = finished.state(7, model=dataclasses.asdict(config), data="p" * 64, tokenizer=tokenizer)
    folder = tmp_path / "train" / checkpoint_folder.RUNS / ("t" * 12)
    checkpoint.write(folder, state, weights, {"exp_avg.x": torch.zeros(1)})
    places = {name: str(tmp_path / name) for name in ("train", "vocab")} | {"out": str(tmp_path / "convert")}
    return ConvertConfig(workdir=str(tmp_path), force=False, **places)


def write_sentence_model(folder):
    """Write what sentence-transformers has next to a BERT, without weights of its own."""
    modules = [{"idx": 0, "name": "0", "path": ""}, {"idx": 1, "name": "1", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{each}": each == "mean_tokens" for each in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "1_Pooling" / "link").symlink_to("/etc/hostname")


def test_a_sentence_model_stays_one(run, tmp_path):
    stage.run("convert", run, convert.make)
    assert not (Path(run.out) / "modules.json").exists()
    write_sentence_model(Path(run.out))
    converted(run, train=run.out, vocab=None, out=str(tmp_path / "again"))
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (Path(run.out) / name).read_bytes()
    assert not (tmp_path / "again" / "1_Pooling" / "link").exists()


@pytest.mark.parametrize("stated", [{"pooling_mode": "cls"}, {"pooling_mode_cls_token": True}])
def test_text_embeddings_inference_finds_the_keys_that_others_do_not_write(run, tmp_path, stated):
    stage.run("convert", run, convert.make)
    write_sentence_model(Path(run.out))
    (Path(run.out) / "sentence_bert_config.json").write_text('{"transformer_task": "feature-extraction"}')
    (Path(run.out) / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    converted(run, train=run.out, vocab=None, out=str(tmp_path / "again"))
    first, pooling = (tmp_path / "again" / name for name in ("sentence_bert_config.json", "1_Pooling/config.json"))
    assert json.loads(first.read_text()) == {"transformer_task": "feature-extraction", "max_seq_length": 40}
    cls, mean, most = (f"pooling_mode_{each}" for each in ("cls_token", "mean_tokens", "max_tokens"))
    assert json.loads(pooling.read_text()) == stated | {cls: True, mean: False, most: False}
    assert sentence_model.pooling_of(tmp_path / "again").kind == "cls"


@pytest.mark.parametrize(
    ("run", "difference", "opened"),
    [("bert", 1e-10, "BertForMaskedLM"), ("modernbert", 1e-6, "ModernBertForMaskedLM")],
    indirect=["run"],
)
def test_a_run_becomes_a_folder_that_transformers_opens(run, difference, opened):
    made = stage.run("convert", run, convert.make)
    assert made.figures["largest_logit_difference"] < difference
    assert made.figures["step"] == 7
    assert "logits equal" in made.summary
    model = AutoModelForMaskedLM.from_pretrained(run.out)
    assert (type(model).__name__, model.config.vocab_size) == (opened, 13)
    assert sum(answer["score"] for answer in hub("fill-mask", run.out)("a [MASK] b")) > 0
    card = (Path(run.out) / "README.md").read_text()
    assert "letters" in card
    assert "| steps | 7 |" in card


@pytest.mark.parametrize("run", ["bert", "modernbert"], indirect=True)
def test_the_length_that_was_learnt_is_that_of_the_tokenizer(run, tmp_path):
    manifest(tmp_path / "prepare", "prepare", figures={"sequence_length": 24})
    made = stage.run("convert", run, convert.make)
    assert (made.figures["learnt"], initial_weights.read(run.out).learnt) == (24, 24)
    again = dataclasses.replace(run, train=run.out, vocab=None, out=str(tmp_path / "again"))
    stage.run("convert", again, convert.make)
    for folder in (run.out, again.out):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer.model_max_length == len(tokenizer("a " * 99, truncation=True)["input_ids"]) == 24
        assert "| longest sequence | 24 tokens learnt, of 40 positions |" in (Path(folder) / "README.md").read_text()


@pytest.mark.parametrize("run", ["modernbert"], indirect=True)
def test_a_modern_folder_of_transformers_is_a_start_with_more_entries(run, tmp_path):
    stage.run("convert", run, convert.make)
    start = tmp_path / "theirs"
    AutoModelForMaskedLM.from_pretrained(run.out).save_pretrained(start)
    AutoTokenizer.from_pretrained(run.out).save_pretrained(start)
    more = make_vocabulary(tmp_path / "more", "abcdefghij")
    made = converted(run, train=str(start), vocab=str(more), out=str(tmp_path / "grown"))
    assert made.figures["added_entries"] == 2
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "grown").config.vocab_size == 15


@pytest.mark.parametrize("words", ["abcdefg", "abcdefghi", "stuvwxyz"])
def test_another_vocabulary_is_refused(run, tmp_path, words):
    other = make_vocabulary(tmp_path / "other", words)
    with pytest.raises(InputError, match=f"{len(words) + 5} entries") as raised:
        stage.run("convert", dataclasses.replace(run, vocab=str(other)), convert.make)
    assert (raised.value.path is None) == (words == "stuvwxyz"), "a size is told of the file"
    assert not Path(run.out).exists()


def test_missing_inputs_are_named(run, tmp_path):
    with pytest.raises(InputError, match=r"pipeline\.vocab"):
        convert.make(dataclasses.replace(run, vocab=str(tmp_path / "no")), tmp_path)
    with refused(InputError, path=str(tmp_path / "no")):
        convert.make(dataclasses.replace(run, train=str(tmp_path / "no")), tmp_path)


FAULTS = [("bert", "bert.pooler.dense.bias", 1e-3), ("bert", "cls.predictions.bias", 1e-3)]
FAULTS += [("modernbert", name, 0.1) for name in ("decoder.bias", "model.layers.1.attn.Wqkv.weight")]


@pytest.mark.parametrize(("run", "name", "by"), FAULTS, indirect=["run"])
def test_the_check_sees_one_wrong_number(run, name, by):
    stage.run("convert", run, convert.make)
    trained = initial_weights.read(run.train)
    path = Path(run.out) / "model.safetensors"
    tensors = load_file(path)
    tensors[name].view(-1)[9] += by
    save_file(tensors, path, metadata={"format": "pt"})
    assert logits.compare(Path(run.out), trained.config, trained.state) > convert.TOLERANCE


def test_the_check_sees_other_token_ids(run):
    stage.run("convert", run, convert.make)
    vocabulary.check_ids(Path(run.out))
    path = Path(run.out) / "tokenizer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"pre_tokenizer": {"type": "WhitespaceSplit"}}))
    with pytest.raises(RuntimeError, match="ids"):  # transformers cuts at punctuation, we do not
        vocabulary.check_ids(Path(run.out))


def test_a_cased_tokenizer_of_others_stays_cased(run, published):
    path = published / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["Foo"] = content["model"]["vocab"].pop("h")
    path.write_text(json.dumps(content | {"normalizer": {"type": "NFKC"}}))
    (published / "vocab.txt").unlink()
    converted(run, train=str(published), vocab=None)
    assert AutoTokenizer.from_pretrained(run.out).tokenize("Foo") == ["Foo"]


@pytest.mark.parametrize(("run", "apart"), [("bert", 2e-5), ("modernbert", 2e-4)], indirect=["run"])
def test_a_wrong_conversion_does_not_finish(run, apart, monkeypatch):
    monkeypatch.setattr(logits, "compare", lambda *_: apart / 3)  # transformers rotates in single precision
    stage.run("convert", run, convert.make)
    monkeypatch.setattr(logits, "compare", lambda *_: apart)
    with pytest.raises(RuntimeError, match="logits"):
        stage.run("convert", dataclasses.replace(run, force=True), convert.make)


def test_a_model_whose_logits_overflow_is_not_converted(run):
    """Each weight is finite, and in double precision so is each logit."""
    last = checkpoint_folder.locate(Path(run.train))[0]
    weights = load_file(last / checkpoint_folder.WEIGHTS)
    name = "encoder.embeddings.norm.weight"
    save_file(weights | {name: torch.full_like(weights[name], 3e38)}, last / checkpoint_folder.WEIGHTS)
    sums = "".join(f"{sha256(last / each)}  {each}\n" for each in checkpoint_folder.FILES)
    (last / checkpoint_folder.SUMS).write_text(sums)
    with pytest.raises(InputError, match="finite in float32"):
        stage.run("convert", run, convert.make)
    assert not Path(run.out).exists()


@pytest.fixture
def published(tmp_path):
    """A BERT as transformers itself writes it, with its vocabulary."""
    make_vocabulary(tmp_path / "theirs", "abcdefgh")
    (tmp_path / "theirs" / "manifest.json").unlink()
    torch.manual_seed(1)
    sizes = {bert_format.NAMES["bert"].sizes[name]: size for name, size in SIZES.items()}
    Theirs(BertConfig(vocab_size=13, **sizes)).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def converted(config, **changes):
    return stage.run("convert", dataclasses.replace(config, **changes), convert.make)


def test_anybodys_bert_comes_out_as_it_went_in(run, published):
    made = converted(run, train=str(published), vocab=None)
    before, after = (load_file(Path(place) / "model.safetensors") for place in (published, run.out))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("vocab.txt", "tokenizer.json"):
        assert (Path(run.out) / name).read_bytes() == (published / name).read_bytes()
    assert made.figures["notes"] == []
    assert made.figures["largest_logit_difference"] < 1e-10
    assert "`theirs`" in (Path(run.out) / "README.md").read_text()


def test_another_tokenizer_than_the_original_is_a_note(run, published):
    lines = (published / "vocab.txt").read_text().replace("h\n", "Foo\n")
    (published / "vocab.txt").write_text(lines)
    (published / "tokenizer.json").unlink()  # transformers lowercases then
    made = converted(run, train=str(published), vocab=None)
    (note,) = made.figures["notes"]
    assert "'Foo Paris'" in note
    assert note in made.summary


def grown(run, published, words):
    """The published vocabulary with more entries, as `vocab` makes it."""
    entries = (published / "vocab.txt").read_text().splitlines()
    return make_vocabulary(Path(run.workdir) / "grown", [*entries[5:], *words.split()])


def test_new_entries_start_as_the_mean_of_their_pieces(run, published):
    entries = (published / "vocab.txt").read_text().splitlines()
    a = entries.index("a")
    made = converted(run, train=str(published), vocab=str(grown(run, published, "##a zebra a-a")))
    assert "3 entries added" in made.summary
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        before, after = (load_file(Path(place) / "model.safetensors")[name] for place in (published, run.out))
        assert torch.equal(after[:13], before)
        torch.testing.assert_close(after[13], before[a])  # only one piece
        torch.testing.assert_close(after[14], before.mean(0))  # was [UNK]
        torch.testing.assert_close(after[15], before.mean(0))  # [UNK] between
    assert AutoModelForPreTraining.from_pretrained(run.out).config.vocab_size == 16
    assert len(AutoTokenizer.from_pretrained(run.out)) == 16


def test_a_training_of_ones_own_takes_more_entries_too(run, tmp_path):
    """By the words of the error that another vocabulary gets, which then is a start that fits."""
    more = make_vocabulary(tmp_path / "more", "abcdefghij")
    data = {"dir": str(tmp_path / "prepare"), "vocab": run.vocab}
    manifest(tmp_path / "train", "train", config={"data": data}, figures={"steps": 7})
    size, words = initial_weights.size_of(run.train), WordPiece.load(more)
    larger = dataclasses.replace(size, vocab_size=15)
    with pytest.raises(InputError, match=f"train={run.train} vocab=FOLDER out=START"):
        initial_weights.start(run.train, larger, words)
    made = converted(run, vocab=str(more))
    assert "2 entries added" in made.summary
    started, before = (initial_weights.read(place).state for place in (run.out, run.train))
    (name,) = (name for name in before if name.endswith("word.weight"))
    assert torch.equal(started[name][:13], before[name])
    initial_weights.start(run.out, larger, words)


def test_a_vocabulary_that_does_not_go_on_is_refused(run, published):
    folder = grown(run, published, "more")
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join([*lines[:5], *lines[:4:-1]]) + "\n")
    (folder / "tokenizer.json").unlink()
    with refused(InputError, "vocab=null", key="vocab", value=str(folder)):
        converted(run, train=str(published), vocab=str(folder))


def test_weights_are_averaged_over_the_last_checkpoints(run):
    (single,) = Path(run.train, checkpoint_folder.RUNS).glob("*/step-*")
    first = checkpoint_folder.read_state(single)
    states = {7: load_file(single / checkpoint_folder.WEIGHTS)}
    for step in (8, 9):
        states[step] = {name: torch.randn_like(tensor) for name, tensor in states[7].items()}
        state = dataclasses.replace(first, step=step)
        checkpoint.write(single.parent, state, states[step], {"exp_avg.x": torch.zeros(1)})
    made = converted(run, average=2)
    assert made.figures["averaged"] == [8, 9]
    assert "2 checkpoints" in made.summary
    assert "| 8, 9 |" in (Path(run.out) / "README.md").read_text()
    found = bert_format.load(run.out)[1]
    for name in states[7]:
        torch.testing.assert_close(found[name], (states[8][name] + states[9][name]) / 2)
    upto = converted(run, average=2, train=str(single.parent / "step-00000008"))
    assert upto.figures["averaged"] == [7, 8]
    with refused(InputError, "step-00000009", key="average"):
        converted(run, average=4)


def test_one_model_cannot_be_averaged(run, published):
    with refused(ConfigError, key="average"):
        converted(run, train=str(published), vocab=None, average=2)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_in_several_files_has_the_logits_of_what_is_left(run, dtype):
    made = converted(run, dtype=dtype, shard_bytes=2000, license="apache-2.0")
    assert made.figures["largest_logit_difference"] < 1e-10
    assert len(list(Path(run.out).glob("model-*.safetensors"))) > 1
    model = AutoModelForMaskedLM.from_pretrained(run.out)
    assert str(model.dtype) == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[dtype]
    assert AutoTokenizer.from_pretrained(run.out)("a b")["input_ids"]
    assert len(hub("fill-mask", run.out)("a [MASK]")) == 5
    assert (Path(run.out) / "README.md").read_text().startswith("---\nlicense: apache-2.0\n")


def names_of(folder):
    session = onnxruntime.InferenceSession(Path(folder) / onnx_export.MODEL)
    return [one.name for one in session.get_outputs()]


@pytest.mark.slow
def test_int8_is_compared_on_held_out_texts_and_said_in_the_card(run, tmp_path):
    rows = np.arange(40 * 12).reshape(40, 12) % 8 + 5
    info = ShardInfo(split="validation", pairs="none", tokenizer="", vocab_size=13, sequence_length=14, seed=0)
    places, none = np.arange(41) * 12, np.zeros(40, np.bool_)
    write_shard(tmp_path / "prepare" / "validation-0.arrow", info, rows.ravel(), places, np.full(40, 12), none)
    made = converted(run, quantize="int8")
    said = made.figures["int8"]
    assert (said["texts"], said["metric"]) == ("40 held-out texts", "masked words")
    assert said["least_cosine"] > 0.99
    assert abs(said["fp32"] - said["int8"]) <= 0.01
    card = (Path(run.out) / "README.md").read_text()
    assert f"at least {said['least_cosine']:.4f} on 40 held-out texts, masked words {said['int8']:.4f}" in card
    assert names_of(run.out) == ["last_hidden_state", "logits", "seq_relationship_logits"]
    again = converted(run, onnx=True, train=run.out, vocab=None, out=str(tmp_path / "again"))
    assert (tmp_path / "again" / "README.md").read_text().count("## Serving") == 1
    assert again.figures["int8"] == {}


@pytest.mark.slow
def test_a_classifier_is_exported_with_its_head_and_scored_on_its_dev_set(run, tmp_path, monkeypatch):
    converted(run)
    (tmp_path / "data").mkdir()
    for name in ("train", "dev"):
        lines = [f"{letter} {other}\t{int(letter < other)}" for letter in "abcdefgh" for other in "abcdefgh"]
        (tmp_path / "data" / f"{name}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    task = TaskConfig(name="order", dev=["d*.tsv"], columns=["sentence"], labels=["0", "1"], metrics=["accuracy"])
    places = {"data": str(tmp_path / "data"), "pretrained": run.out, "out": str(tmp_path / "tuned")}
    search = {"epochs": 1, "baseline": False, "keep": True, "sequence_length": 16}
    evaluate.evaluate(EvaluateConfig(task=task, workdir=str(tmp_path), force=False, **places, **search))
    evaluated = Manifest.read(places["out"])
    model = tmp_path / "tuned" / "model"
    made = converted(run, train=str(model), vocab=None, out=str(tmp_path / "served"), quantize="int8")
    assert names_of(str(tmp_path / "served")) == ["logits"]
    assert made.figures["int8"]["fp32"] == pytest.approx(evaluated.figures["score"])
    assert made.figures["int8"]["texts"] == "64 texts of the dev set of order"
    assert sha256(tmp_path / "served" / "model.safetensors") == sha256(model / "model.safetensors")
    with refused(ConfigError, key="dtype"):
        converted(run, train=str(model), vocab=None, out=str(tmp_path / "half"), onnx=True, dtype="bf16")
    monkeypatch.setattr(onnx_export, "LARGEST", 1)
    for key, value in (("onnx", True), ("quantize", "int8")):
        with refused(InputError, "too large", key=key):
            converted(run, train=str(model), vocab=None, out=str(tmp_path / "large"), **{key: value})


def test_what_no_training_changed_is_known_in_every_later_folder(run, tmp_path):
    settings = Manifest.read(run.train)
    masked = {"objective": {"next_sentence": False}, "start": None}
    dataclasses.replace(settings, config=settings.config | masked).write(Path(run.train))
    converted(run)
    again = converted(run, train=run.out, vocab=None, out=str(tmp_path / "again"))
    assert "next_sentence and pooler" in again.summary
    foreign = AutoModelForMaskedLM.from_pretrained(run.out)  # has neither
    del foreign.config.untrained_parts
    foreign.save_pretrained(tmp_path / "start")
    masked["start"] = str(tmp_path / "start")
    dataclasses.replace(settings, config=settings.config | masked).write(Path(run.train))
    converted(run, out=str(tmp_path / "started"))
    AutoModel.from_pretrained(run.out).save_pretrained(tmp_path / "pooled")  # its pooler is no random one
    config = tmp_path / "pooled/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"untrained_parts": []}))
    converted(run, train=str(tmp_path / "pooled"), vocab=run.vocab, out=str(tmp_path / "from-pooled"))
    unknown = bert_format.initialised_parts(bert_format.load(tmp_path / "from-pooled")[2])
    assert unknown == ["masked_head", "next_sentence"]
    for folder in (run.out, tmp_path / "again", tmp_path / "started"):
        assert bert_format.initialised_parts(bert_format.load(folder)[2]) == ["next_sentence", "pooler"]
    assert "| not trained, randomly initialised | next_sentence, pooler |" in (tmp_path / "again/README.md").read_text()


def test_the_command_converts_and_then_is_up_to_date(run, root):
    settings = [f"{key}={getattr(run, key)}" for key in ("out", "train", "vocab")]
    command = [sys.executable, "-m", "pipeline.convert", *settings]
    first = forked.run(command, check=True).stdout
    assert "logits" in first
    offline = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "none", "BERT_STORE_TIMEOUT": "1"}
    pushed = subprocess.run([*command, "push=me/model"], cwd=root, capture_output=True, text=True, env=offline)
    assert "up to date" in pushed.stdout
    assert pushed.returncode == 75  # it may answer later
    assert pushed.stderr.startswith("stopped: push=me/model: ")
    assert len(pushed.stderr.splitlines()) == 1
    assert json.loads((Path(run.out) / "manifest.json").read_text())["stage"] == "convert"
