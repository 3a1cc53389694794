"""What is in a folder of shards can be seen, and damage is found."""

import os
import re
import sys

import pytest

from pipeline import inspect, prepare
from pipeline.records.manifest import require_manifest
from pipeline.stages import stage
from pipeline.tokenization.wordpiece import SPECIAL, build
from tests.pipeline.evaluation.byte_level import learn_byte_level
from tests.support import forked, preparing

WORDS = ["river", "mill", "##s", "road", "rain", "fell", "on", "the", "."]


def make(folder, pairs):
    (folder / "tokenizer.json").write_text(build([*SPECIAL, *WORDS], lowercase=True))
    texts = (f"{'The mills fell. ' * 30}\n{'Rain fell on the road. ' * n}" for n in range(1, 40))
    (folder / "a.txt").write_text("\n\n".join(texts))
    shards = {"pairs": pairs, "out": str(folder / "prepare"), "validation_share": 0.2, "sequence_length": 32}
    config = preparing.settings("text", f"{folder}/a.txt", folder, options={"document": "paragraph"}, **shards)
    stage.run("prepare", config, prepare.make)
    return folder / "prepare"


def look(*words):
    return forked.module("pipeline.inspect", *words)


def test_a_folder_is_shown_whole(tmp_path):
    folder = make(tmp_path, "nsp")
    done = look(str(folder), "--samples", "4", "--png", f"{tmp_path}/lengths.png")
    assert done.returncode == 0, done.stderr
    figures = require_manifest(folder, "prepare", "x").figures
    documents = figures["documents"]
    assert f"{documents['read']} documents read = " in done.stdout
    assert f"{documents['written']} written" in done.stdout
    assert done.stdout.count("checksum ok") == len(figures["shards"]) + 1 == 3, "and the documents left out"
    shown = re.findall(r"^  (\[CLS\] .* \[SEP\] .* \[SEP\])$", done.stdout, re.MULTILINE)
    assert len(shown) == 4
    assert all(re.search(r"\{\S+\|(##)?\w+\}|\{\S+\|\.\}", text) for text in shown)
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("pairs", "kind"), [("sop", "in order|swapped"), ("none", "full")])
def test_the_histogram_counts_every_instance(pairs, kind, tmp_path, capsys, monkeypatch):
    folder = make(tmp_path, pairs)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["inspect", str(folder)])
    with pytest.raises(SystemExit, match="0"):
        inspect.main()
    shown = capsys.readouterr().out
    bars = re.findall(r"^ +\d+(?:-\d+)? +([\d,]+) █*$", shown, re.MULTILINE)
    totals = require_manifest(folder, "prepare", "x").figures["totals"]
    assert sum(int(count.replace(",", "")) for count in bars) == (totals["train"] + totals["validation"])
    assert re.search(kind, shown)


def test_byte_level_tokens_are_text():
    text = "the naïve été"
    tokenizer = learn_byte_level([text] * 3)
    ids = [tokenizer.cls, *tokenizer.encode([text])[0].tolist(), tokenizer.sep]
    shown = [inspect.entries(tokenizer)[number] for number in ids]
    assert shown == ["[CLS]", "##the", "naïve", "été", "[SEP]"]
    marked = inspect.label_tokens(["[CLS]", "[MASK]"], [1], [ids[2]], inspect.entries(tokenizer))
    assert marked == {1: "{[MASK]|naïve}"}


def test_a_broken_document_may_have_a_name_of_any_bytes(tmp_path):
    folder = make(tmp_path, "nsp")
    manifest = require_manifest(folder, "prepare", "x")
    manifest.figures["named"] = {"broken": ["c\udce9.txt: binary"]}
    manifest.write(folder)
    done = forked.fresh("-m", "pipeline.inspect", folder, env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"})
    assert done.returncode == 0, done.stderr
    assert r"broken: c\udce9.txt: binary" in done.stdout


def test_damage_and_a_wrong_vocabulary_are_errors(tmp_path):
    folder = make(tmp_path, "nsp")
    (tmp_path / "tokenizer.json").write_text(build([*SPECIAL, *WORDS, "more"], lowercase=True))
    assert "--vocab" in look(str(folder)).stderr
    shard = next(folder.glob("train-*"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    done = look(str(folder))
    assert done.returncode == 2
    assert f"{shard.name}: wrong checksum" in done.stderr
    assert "pipeline.prepare" in look(str(tmp_path / "nowhere")).stderr
    assert look(str(folder), "--samples=-1").stderr.startswith("error: --samples=-1: ")
    assert look(str(folder), "--step=5").stderr.startswith("error: --step=5: is a step of a training; add --train")
