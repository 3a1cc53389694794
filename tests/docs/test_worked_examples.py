"""The pages "How to add …" work as they stand: their files are written, their commands run."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

from benchmarks.small import make_work
from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from pipeline.shards import open_folder, write_shard
from tests.docs.fences import blocks
from tests.model.huggingface import test_roberta_format

pytestmark = pytest.mark.slow


def follow(root, page, tree):
    """Do what a page says in a copy of the project; what its commands printed."""
    for folder in ("conf", "model", "pipeline"):
        shutil.copytree(root / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tree)
    printed = ""
    for block in blocks(root / "docs" / page):
        if block.title:
            (tree / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tree / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed += shell(block.text, tree, tree)
    return printed


def shell(commands, folder, root):
    """Run what a block says, with the project that is in `root`; what it printed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, commands + done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def corpus(root, tmp_path_factory):
    """What one has after the page about corpora."""
    tree = tmp_path_factory.mktemp("corpus")
    assert "2 passed" in follow(root, "add-corpus.md", tree)
    return tree


def test_a_corpus_of_ones_own_becomes_shards(corpus):
    assert sum(shard.rows for shard in open_folder(corpus / "work/subtitles/prepare", "train")) > 40


def test_the_reader_on_the_page_of_the_format_reads_what_prepare_writes(root, corpus, tmp_path):
    (reader,) = [block for block in blocks(root / "docs" / "format.md") if block.title == "read_shards.py"]
    (tmp_path / reader.title).write_text(reader.text)
    scope = {}
    exec(compile(reader.text, reader.title, "exec"), scope)
    samples = scope["samples"]
    found = list(samples(corpus / "work/subtitles/prepare", "train", 1, 2))
    expected = []
    for shard in open_folder(corpus / "work/subtitles/prepare", "train"):
        for row in range(shard.rows):
            ids = shard.values[shard.offsets[row] : shard.offsets[row + 1]].tolist()
            cut = int(shard.a_len[row])
            sample = [1, *ids[:cut], 2, *ids[cut:], 2]
            segments = [0] * (cut + 2) + [1] * (len(ids) - cut + 1)
            expected.append((sample, segments, bool(shard.is_random_next[row])))
        info = dataclasses.replace(shard.info, words="jieba")
        stored = info.marked(shard.values, np.arange(len(shard.values)) % 2 == 1)
        path = tmp_path / shard.path.name
        write_shard(path, info, stored, shard.offsets, shard.a_len, shard.is_random_next)
    assert (found, list(samples(tmp_path, "train", 1, 2))) == (expected, expected)
    imports = {line.split()[1] for line in reader.text.splitlines() if "import" in line}
    assert imports == {"json", "pathlib", "pyarrow"}


def write_bert(folder):
    letters = [chr(number) for number in range(97, 123)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertForMaskedLM(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


def write_xlmr(folder):
    test_roberta_format.their_model("xlm-roberta", max_position_embeddings=130).save_pretrained(folder)
    test_roberta_format.write_tokenizer(folder)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("write", "learn"), [(write_bert, "learn=20"), (write_xlmr, "")])
def test_an_existing_model_goes_on_in_the_steps_of_the_page(root, tmp_path, write, learn):
    steps, uses = [block for block in blocks(root / "docs/continue.md") if "=work/books" in block.text][:2]
    (tmp_path / "model").symlink_to(root / "model")
    torch.manual_seed(0)
    write(tmp_path / "MODEL")
    for folder in ("TEXT", "DATA"):
        (tmp_path / folder).mkdir()
    for number in range(300):
        said = [f"Sailor {number} tells story {line} of the sea." for line in range(9)]
        (tmp_path / "TEXT" / f"{number}.txt").write_text("\n\n".join(said))
    (tmp_path / "LINES").write_text("\n".join(said))
    rows = [json.dumps({"text": f"story {number}", "label": ("bad", "good")[number % 2]}) for number in range(60)]
    (tmp_path / "DATA/classes.jsonl").write_text("\n".join(rows))
    (tmp_path / "DATA/tags.conll").write_text("\n\n".join(f"Sailor B-PER\n{number} O" for number in range(60)))
    small = "steps=3 threads=1 batch_size=8 micro_batch=8 tracking=none evaluate_samples=8"
    text = steps.text.replace("batch_size=32 steps=60", small)
    assert small in text
    printed = shell(text.replace("learn=2000", learn), tmp_path, root)
    assert "step 3, logits equal within" in printed
    assert len(json.loads(printed.splitlines()[-1])["masks"][0]) == 5
    grid = "batch_sizes=[8] learning_rates=[1e-3] seeds=[0] epochs=1 task.dev_share"
    printed = shell(uses.text.replace("task.dev_share", grid), tmp_path, root)
    assert ("own accuracy" in printed, "ner f1" in printed) == (True, True)
    done = tmp_path / "work/books/convert"
    vectors = np.load(tmp_path / "work/books/vectors.npy")
    np.testing.assert_allclose(SentenceTransformer(str(done)).encode(said), vectors, atol=1e-5)
    if not learn:
        theirs, ours = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "MODEL", done))
        assert ours(said)["input_ids"] == theirs(said)["input_ids"]


def test_a_modernbert_is_trained_extended_and_continued_as_the_page_says(root, tmp_path):
    for folder in ("model", "conf"):
        (tmp_path / folder).symlink_to(root / folder)
    write_modernbert(tmp_path / "MODEL")
    (tmp_path / "TEXT").mkdir()
    for number in range(400):
        lines = range(400 if number % 5 == 0 else 9)
        said = [f"Sailor {number} tells story {line} of the sea." for line in lines]
        (tmp_path / "TEXT" / f"{number}.txt").write_text("\n\n".join(said))
    small = "threads=1 batch_size=2 micro_batch=1 tracking=none evaluate_samples=4 steps="
    wanted = ("pipeline.vocab +corpus=books", "prepare-8192", "existing=MODEL")
    chosen = [block.text for block in blocks(root / "docs/modernbert.md") if any(word in block.text for word in wanted)]
    assert len(chosen) == len(wanted)
    for text in chosen:
        text = text.replace("modern-base", "modern-tiny").replace("batch_size=64 micro_batch=4", "")
        text = re.sub(r"steps=(\d)0+", small + r"\1", text).replace("size=32768", "size=200")
        shell(text, tmp_path, root)
    books = tmp_path / "work/books"
    trained = {
        name: json.loads((books / name / "manifest.json").read_text())
        for name in ("train", "train-8192", "prepare-8192")
    }
    assert trained["prepare-8192"]["figures"]["sequence_length"] == 8192
    assert trained["train-8192"]["config"]["start_optimizer"] is True
    continued = json.loads((tmp_path / "work/continued/train/manifest.json").read_text())
    assert (continued["config"]["start"], continued["figures"]["steps"]) == ("MODEL", 2)
    page = blocks(root / "docs/modernbert.md")
    (use,) = [block.text for block in page if block.language == "python"]
    use = use.replace("work/sample/convert", "work/books/convert")
    (tmp_path / "use.py").write_text(use + 'print(fill("a [MASK] .")[0])\n')
    assert "token_str" in shell("python use.py", tmp_path, root)


def write_modernbert(folder):
    """Write a random ModernBERT with byte-level BPE, as transformers and tokenizers make them."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=letters, vocab_size=300)
    tokenizer.train_from_iterator(["the sea and the sailor"], trainer)
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = ModernBertConfig(vocab_size=tokenizer.get_vocab_size(), **sizes, **special)
    ModernBertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_a_runner_gives_the_bytes_of_another(root, tmp_path):
    assert follow(root, "add-runner.md", tmp_path).count("instances in") == 2


def test_a_size_a_schedule_and_an_objective_are_counted_and_train(root, tmp_path):
    make_work(tmp_path / "work" / "sample")
    printed = follow(root, "add-model-size.md", tmp_path)
    size = ModelConfig(name="narrow", layers=6, hidden=192, heads=3, feed_forward=768, vocab_size=30522)
    count = sum(parameter.numel() for parameter in build_model(size).parameters())
    assert f"{count:,} parameters" in printed
    manifest = json.loads((tmp_path / "work/narrow/manifest.json").read_text())
    chosen = {key: manifest["config"][key]["name"] for key in ("model", "schedule", "objective")}
    assert chosen == {"model": "narrow", "schedule": "inverse_root", "objective": "many"}


def test_an_architecture_trains(root, tmp_path):
    make_work(tmp_path / "work" / "sample")
    follow(root, "add-architecture.md", tmp_path)
    manifest = json.loads((tmp_path / "work/neobert/manifest.json").read_text())
    assert (manifest["config"]["model"]["architecture"], manifest["figures"]["steps"]) == ("neobert", 2)


def test_a_task_and_a_metric_are_evaluated(root, tmp_path):
    work = tmp_path / "work" / "sample"
    make_work(work)
    size = ModelConfig(name="tiny", layers=1, hidden=32, heads=2, feed_forward=64, vocab_size=125, positions=128)
    torch.manual_seed(0)
    model = build_model(size)
    bert_format.save(work / "convert", size, model.state_dict(), work / "vocab")
    accuracy, balanced = map(float, re.findall(r"^[\d.]+$", follow(root, "add-task.md", tmp_path), re.MULTILINE))
    assert 0 <= accuracy <= 1
    assert balanced == pytest.approx(accuracy), "the dev set has as many of each class"
