"""The int8 graph of a folder gives nearly what the folder's fp32 weights do, by the same commands."""

import numpy as np
import pytest

from model.huggingface import onnx_export
from pipeline.config import EmbedConfig, PredictConfig
from pipeline.errors import ConfigError
from pipeline.evaluation.input_rows import Row
from pipeline.evaluation.sentence_encoder import SentenceEncoder
from pipeline.predict import answerer
from tests.model.served_folders import made, of_sentences, pretrained, tuned
from tests.support.refusals import refused

TEXTS = ["the uber the a b c", "über.", "the a [MASK]", "a"]


def quantized(tmp_path, architecture, make):
    folder = made(tmp_path, architecture, make)
    samples = [(np.array([2, 5 + number, 3]), 3) for number in range(4)]
    onnx_export.write(folder, [], onnx_export.Texts("texts", samples))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("make", [pretrained, of_sentences])
@pytest.mark.parametrize("pooling", [None, "cls", "tokens"])
def test_vectors_are_nearly_those_of_fp32(make, pooling, tmp_path):
    folder = quantized(tmp_path, "bert", make)
    found = []
    for how in (None, "int8"):
        if how:
            (folder / "model.safetensors").unlink()  # the graph has all weights
        config = EmbedConfig(pretrained=str(folder), out="x.arrow", pooling=pooling, quantize=how)
        encoder = SentenceEncoder(config)
        found.append(encoder.vectors(encoder.samples(TEXTS)))
    for fp32, int8 in zip(*found, strict=True):
        assert fp32.shape == int8.shape
        assert (fp32 * int8).sum() / np.linalg.norm(fp32) / np.linalg.norm(int8) > 0.99


LINES = {"class": TEXTS, "tag": TEXTS, "answer": ["the a\tuber b the c a", "uber\ta b"]}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("kind", LINES)
def test_answers_are_nearly_those_of_fp32(architecture, kind, tmp_path):
    folder = quantized(tmp_path, architecture, tuned(kind))
    found = [answers(folder, LINES[kind], how) for how in (None, "int8")]
    key = {"class": "probabilities", "tag": "words", "answer": "question"}[kind]
    for fp32, int8 in zip(*found, strict=True):
        assert fp32.keys() == int8.keys()
        assert int8[key] == (pytest.approx(fp32[key], abs=0.02) if kind == "class" else fp32[key])


@pytest.mark.slow
def test_masks_and_pairs_are_nearly_those_of_fp32(tmp_path):
    folder = quantized(tmp_path, "bert", pretrained)
    (fp32, both), (int8, again) = (answers(folder, ["the [MASK] a", "the\t[MASK]"], how) for how in (None, "int8"))
    for one, other in ((fp32, int8), (both, again)):
        assert other["masks"][0][0]["probability"] == pytest.approx(one["masks"][0][0]["probability"], abs=0.01)
    assert again["next"] == pytest.approx(both["next"], abs=0.01)


def answers(folder, lines, how):
    answer, _ = answerer(PredictConfig(pretrained=str(folder), quantize=how))
    return answer([Row(number, f"line {number}", line) for number, line in enumerate(lines, 1)])


def test_a_folder_without_a_graph_is_refused_with_the_command_that_writes_it(tmp_path):
    folder = made(tmp_path, "bert", pretrained)
    with refused(ConfigError, rf"pipeline\.convert train={folder} quantize=int8", key="quantize"):
        SentenceEncoder(EmbedConfig(pretrained=str(folder), out="x.npy", quantize="int8"))
