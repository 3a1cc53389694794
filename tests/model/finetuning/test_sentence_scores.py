"""Scores of sentences are those of minicons and of a plain loop over transformers' models.

`golden/minicons.json` has what minicons 0.3.39 gave; where it is installed,
it is asked again, and `--golden` writes the file again.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from model.encoders.architectures import build_model
from model.finetuning import features, sentence_scores
from model.finetuning.sentence_scores import SentenceScorer
from model.huggingface import bert_format
from pipeline.tokenization.wordpiece import WordPiece
from tests.model import tiny_bert, tiny_modernbert

GOLDEN = Path(__file__).parent / "golden" / "minicons.json"
SENTENCES = "the cat saw the dog .|the cat saw the dogs .|a|abc def|über alles|the 中文 zoo."
SENTENCES = [*SENTENCES.split("|"), "abc def ghi jkl mno pqr stu", "the cat saw the dog .", "x é z", "the the the"]
KINDS = {
    "bert": tiny_bert.CONFIG,
    "modernbert": replace(tiny_modernbert.CONFIG, vocab_size=len(tiny_bert.WORDS), local_window=4),
    "causal": replace(tiny_bert.CONFIG, causal=True),
}
METHODS = ("pll", "word_l2r")
EXACT = 1e-4


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    """A model with random weights."""
    top = tmp_path_factory.mktemp(kind)
    vocab = tiny_bert.make_vocabulary(top / "vocab")
    bert_format.save(top / "model", KINDS[kind], network(KINDS[kind]).state_dict(), vocab)
    return top / "model"


def network(config):
    torch.manual_seed(0)
    return build_model(config)


def ours(folder, method, sentences, first=None):
    size, state, *_ = bert_format.load(folder)
    model = build_model(size)
    model.load_state_dict(state)
    wordpiece = WordPiece.load(folder)
    sequences = [features.frame(wordpiece, ids, None)[0] for ids in features.texts(wordpiece, sentences)]
    scorer = SentenceScorer(model, wordpiece.mask, torch.device("cpu"))
    starts = np.ones(len(sequences), np.int64) if first is None else np.array(first)
    marks = [np.pad(part, 1) for part in wordpiece.word_marks(sentences)]
    return scorer.scores(sequences, starts, marks if method == "word_l2r" else None)


@torch.no_grad()
def one_by_one(folder, kind, method, sentence):
    """The log-probability of each token, by transformers, a pass each."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(sentence, return_tensors="pt")
    ids, words = encoded["input_ids"], encoded.word_ids()
    if kind == "causal":
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        logits = model(ids).logits.log_softmax(-1)[0]
        return [float(logits[n - 1, ids[0, n]]) for n in range(1, ids.shape[1] - 1)]
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    found = []
    for place in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        for other in range(place, ids.shape[1] - 1):
            if other == place or (method == "word_l2r" and words[other] == words[place]):
                masked[0, other] = tokenizer.mask_token_id
        logits = model(masked).logits.log_softmax(-1)[0, place]
        found.append(float(logits[ids[0, place]]))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_score_is_the_sum_of_a_pass_for_each_token(folder, kind, method):
    expected = [sum(one_by_one(folder, kind, method, sentence)) for sentence in SENTENCES]
    assert ours(folder, method, SENTENCES) == pytest.approx(expected, abs=EXACT)


def test_the_tokens_of_a_context_are_read_and_not_counted(folder, kind):
    expected = [sum(one_by_one(folder, kind, "pll", sentence)[3:]) for sentence in SENTENCES[:2]]
    assert ours(folder, "pll", SENTENCES[:2], [4, 4]) == pytest.approx(expected, abs=EXACT)


def test_a_score_does_not_depend_on_the_company(folder):
    alone = [ours(folder, "pll", [sentence])[0] for sentence in SENTENCES]
    assert ours(folder, "pll", SENTENCES) == pytest.approx(alone, abs=1e-5)


def test_small_batches_give_the_same(folder, monkeypatch):
    whole = ours(folder, "pll", SENTENCES)
    monkeypatch.setattr(sentence_scores, "BATCH_TOKENS", 1)
    monkeypatch.setattr(sentence_scores, "HEAD_PIECE", (1, 7))
    assert ours(folder, "pll", SENTENCES) == pytest.approx(whole, abs=1e-5)


def test_a_pair_that_differs_in_one_token_shares_that_copy():
    ids = np.array([[2, 5, 6, 3], [2, 5, 7, 3]])
    queries = sentence_scores.queries_of(ids, np.array([1, 1]), 4, None)
    assert len(queries.label) == 4
    assert sorted(map(tuple, queries.copies.tolist())) == [(2, 4, 6, 3), (2, 4, 7, 3), (2, 5, 4, 3)]
    shared = {tuple(queries.copies[copy]): [] for copy in queries.copy}
    for copy, label in zip(queries.copy, queries.label, strict=True):
        shared[tuple(queries.copies[copy])].append(int(label))
    assert sorted(shared[2, 5, 4, 3]) == [6, 7]


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_minicons(folder, kind, method, request):
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    try:
        found = minicons(folder, kind, method)
    except ImportError:
        found = golden[f"{kind} {method}"]
    if request.config.getoption("--golden"):
        golden[f"{kind} {method}"] = found
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert ours(folder, method, SENTENCES) == pytest.approx(found, abs=EXACT)
    assert golden[f"{kind} {method}"] == pytest.approx(found, abs=EXACT)


def minicons(folder, kind, method):
    from minicons import scorer

    # The library's own tokenizing calls what transformers 5 has removed.
    encoded = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    if kind == "causal":
        model = scorer.IncrementalLMScorer(str(folder), "cpu")
        encoded.pop("token_type_ids", None)
        parts = model.compute_stats((encoded, [0] * len(SENTENCES)), return_tensors=True)
        return [float(part[:-1].sum()) for part in parts]  # without [SEP], as BabyLM has it
    model = scorer.MaskedLMScorer(str(folder), "cpu")
    metric = {"pll": "original", "word_l2r": "within_word_l2r"}[method]
    total = model.sequence_score(encoded, reduction=lambda part: float(part.sum()), PLL_metric=metric)
    return [float(score) for score in total]


def test_products_are_exact_while_scores_are_made_and_as_before_afterwards():
    model, seen = network(tiny_bert.CONFIG), []
    model.encoder.layers[0].register_forward_pre_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    scorer = SentenceScorer(model, 4, torch.device("cpu"))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # as `device_of` sets it on a GPU
    try:
        scorer.scores([np.array([2, 5, 6, 3])], np.array([1]))
        assert (seen, torch.get_float32_matmul_precision()) == (["highest"], "high")
    finally:
        torch.set_float32_matmul_precision(before)
