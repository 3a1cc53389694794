"""Retrieval and similarity: the figures are those of other libraries, ties have one rule, systems are side by side."""

import gzip
import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pipeline import evaluate, report
from pipeline.config import EvaluateConfig, ReportConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import beir, exact_search, examples, text_similarity
from pipeline.records.metrics import Score, SystemScore
from pipeline.stages import stage
from pipeline.tokenization.wordpiece import SPECIAL
from tests.model.sizes import small
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.support.refusals import refused

WORDS = [*SPECIAL, *"abcdefgh", ".", *(f"##{letter}" for letter in "abcdefgh")]
METRICS = {"ndcg@10": "ndcg_cut_10", "recall@1": "recall_1", "recall@10": "recall_10", "mrr@10": "recip_rank"}
SYSTEMS = ["this model", "before", "random initialisation", "mean of its token vectors", "BM25"]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return write_letter_model(tmp_path_factory, small(len(WORDS), initializer_range=0.2), WORDS)


def write_set(data, documents, queries, judged):
    (data / "qrels").mkdir(parents=True)
    for name, some in (("corpus", documents), ("queries", queries)):
        rows = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in some.items()]
        (data / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)]
    (data / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path):
    """80 documents, of which some are equal, and 20 queries with one to three graded answers; one query has none."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(list("abcdefgh"), 6)) for _ in range(70)]
    documents = {f"d{number}": text for number, text in enumerate([*texts, *texts[:10]])}
    queries = {f"q{number}": " ".join(texts[number].split()[:3]) for number in range(20)}
    judged = [(f"q{n}", f"d{n + 7 * more}", 1 + more) for n in range(20) for more in range(1 + n % 3)]
    write_set(tmp_path / "data", documents, queries | {"unjudged": "a"}, judged)
    return tmp_path / "data"


def config_of(tmp_path, model, task="retrieval", **settings):
    common = {"workdir": str(tmp_path), "out": str(tmp_path / "out"), "data": str(tmp_path / "data"), "threads": 1}
    return EvaluateConfig(task=examples.task_of(task), pretrained=str(model), **common, **settings)


def test_a_set_is_searched_by_all_systems_with_the_figures_of_trec_eval(tmp_path, data, model_folder):
    trec = pytest.importorskip("pytrec_eval")
    manifest = stage.run(
        "evaluate", config_of(tmp_path, model_folder, before=str(model_folder)), evaluate.make, in_place=True
    )
    found = Score.of(manifest)
    assert isinstance(found, SystemScore)
    assert list(found.systems) == SYSTEMS
    judged = beir.read(data, examples.task_of("retrieval")).judged
    oracle = trec.RelevanceEvaluator(judged, {*METRICS.values()})
    for name, title in zip(("model", "before", "random", "bag", "bm25"), SYSTEMS, strict=True):
        (run,) = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert all(len(hits) <= 10 for hits in run.values())
        theirs = oracle.evaluate(run)
        for ours, key in METRICS.items():
            expected = np.mean([theirs[query][key] for query in judged])
            assert found.systems[title]["scores"][ours] == pytest.approx(expected), (name, ours)
        low, high = found.systems[title]["intervals"]["ndcg@10"]
        assert low <= found.systems[title]["scores"]["ndcg@10"] <= high
    documents = beir.read(data, examples.task_of("retrieval")).documents  # ten of them twice
    index = importlib.import_module("bm25s").BM25(method="lucene", k1=1.2, b=0.75)
    index.index([text.split() for text in documents.values()], show_progress=False)
    scores = dict(zip(documents, index.get_scores(documents["d0"].split()[:3]), strict=True))
    assert run["q0"] == pytest.approx({name: scores[name] for name in run["q0"]})
    assert found.systems["this model"] == found.systems["before"]
    assert found.score == found.systems["this model"]["scores"]["ndcg@10"]
    assert found.rows == {"dev": 20, "documents": 80}
    assert "1 query without judgement left out" in found.remarks
    report.run(ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "report"), stages=[str(tmp_path / "out")]))
    assert "BM25" in (tmp_path / "report" / "report.html").read_text()


def test_an_interrupted_evaluation_searches_only_with_the_systems_that_have_not(
    tmp_path, data, model_folder, monkeypatch
):
    config = config_of(tmp_path, model_folder)
    first, _, files = text_similarity.evaluate(config, tmp_path / "out")
    runs = tmp_path / "out" / "runs"
    kept = json.loads((runs / "bag.json").read_text())
    kept["scores"]["ties"] = 77  # shows that it is not searched again
    (runs / "bag.json").write_text(json.dumps(kept))
    (runs / "bm25.json").unlink()
    monkeypatch.delattr(text_similarity, "SentenceEncoder")  # no model is opened for what is there
    again, _, others = text_similarity.evaluate(config, tmp_path / "out")
    assert again.systems.pop("mean of its token vectors")["ties"] == 77
    assert first.systems.pop("mean of its token vectors")["ties"] != 77
    assert (again, others) == (first, files)
    monkeypatch.undo()
    fresh, *_ = text_similarity.evaluate(replace(config, seeds=[2]), tmp_path / "out")
    assert fresh.systems["mean of its token vectors"]["ties"] != 77


def test_equal_scores_are_in_descending_order_of_ids_and_those_at_the_cut_are_counted(tmp_path, model_folder):
    documents = {f"d{number:02}": "a b c" for number in range(15)} | {"e": "h g \ud83d", "f": " "}
    judged = [("q", "d14", 1), ("q", "d00", 1), ("d03", "d05", 1), ("d11", "d11", 1)]
    write_set(tmp_path / "data", documents, {"q": "a b", "d03": "a b c", "d11": "a b"}, judged)
    config = config_of(tmp_path, model_folder, baseline=False)
    stage.run("evaluate", config, evaluate.make, in_place=True)
    (run,) = json.loads((tmp_path / "out" / "bm25.json").read_text())
    assert list(run["q"]) == [f"d{number:02}" for number in range(14, 4, -1)]
    assert "d03" not in run["d03"]  # a query does not find itself
    assert "d11" in run["d11"]  # but where ids are numbers of both
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["systems"]["BM25"]["ties"] == 3
    assert "1 document without text" in results["remarks"]
    assert results["systems"]["BM25"]["scores"]["recall@10"] == pytest.approx((0.5 + 1 + 1) / 3)


def test_blocks_do_not_change_what_is_found(monkeypatch):
    draw = np.random.default_rng(0)
    vectors = {f"{number}": draw.integers(-2, 3, 4).astype(np.float32) for number in range(300)}
    system = exact_search.ByVectors(lambda texts, _: np.stack([vectors[text] for text in texts]))
    queries, documents = list(vectors)[:50], list(vectors)
    scores = system.vectors_of(queries, ()) @ system.vectors_of(documents, ()).T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :12]
    monkeypatch.setattr(exact_search, "DOCUMENTS", 7)
    monkeypatch.setattr(exact_search, "QUERIES", 3)
    places, found = exact_search.nearest(system, queries, dict.fromkeys(documents, "d"), 12, lambda _: None)
    np.testing.assert_allclose(found, np.take_along_axis(scores, expected, 1), atol=1e-6)
    same = np.isclose(found[:, :-1], found[:, 1:], atol=1e-6)
    assert (places[:, :-1] < places[:, 1:])[same].mean() > 0.9  # products may differ in the last bit between blocks


def test_bm25_finds_nothing_without_a_common_word():
    by_words = exact_search.ByWords()
    documents = dict.fromkeys(["a b", "b c", "A"], "d")
    places, scores = exact_search.nearest(by_words, ["a", "zzz", "?"], documents, 3, lambda _: None)
    assert np.isfinite(scores).tolist() == [[True, True, False], [False] * 3, [False] * 3]
    assert places[0, :2].tolist() == [2, 0]  # the shorter one first
    assert not np.isfinite(exact_search.nearest(by_words, ["a"], {"?!": "d", "": "e"}, 2, lambda _: None)[1]).any()


@pytest.mark.parametrize(
    ("text", "expected"), [("L'été, 東京都!", ["l", "été", "東京", "京都"]), ("हिन्दी में", ["हिन्दी", "में"])]
)
def test_words_of_bm25_keep_their_marks_and_those_without_spaces_are_pairs(text, expected):
    assert exact_search.words(text) == expected


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("queries.jsonl", '{"_id": "q0"}\n', 1),
        ("queries.jsonl", '{"_id": "q0", "text": null}\n', 1),
        ("corpus.jsonl", '{"_id": "a", "text": ""}\n{"_id": "a", "text": ""}\n', 2),
        ("corpus.jsonl", '{"_id": null, "text": ""}\n', 1),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t0.5\n", 2),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nzz\td0\t1\n", None),
        ("qrels/test.tsv", "q0\td0\t1\nq0\td0\t0\n", 2),
        ("qrels/test.tsv", "q0\t0.0\t1\n", None),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", None),
    ],
)
def test_a_broken_set_is_refused(data, name, text, line):
    (data / name).write_text(text)
    with refused(InputError, path=str(data / name)) as error:
        beir.read(data, examples.task_of("retrieval"))
    assert error.value.line == line


@pytest.mark.parametrize("head", ["", "qid\tdocid\trelevance\n"])
def test_judgements_lose_no_line_whatever_is_above_them(data, head):
    (data / "corpus.jsonl.gz").write_bytes(gzip.compress(b"\x1e" + (data / "corpus.jsonl").read_bytes()))  # RFC 7464
    (data / "corpus.jsonl").unlink()
    (data / "qrels" / "test.tsv").write_text(f"{head}q0\td0\t1\nq1\td1\t0\n")
    assert beir.read(data, examples.task_of("retrieval")).judged == {"q0": {"d0": 1}, "q1": {"d1": 0}}
    (data / "corpus.jsonl.gz").write_bytes((data / "corpus.jsonl.gz").read_bytes()[:-9])
    with refused(InputError, path=str(data / "corpus.jsonl.gz")):
        beir.read(data, examples.task_of("retrieval"))


@pytest.mark.parametrize("settings", [{"similarity_fn_name": "dot"}, {"truncate_dim": 6}])
def test_a_sentence_model_has_the_scores_that_sentence_transformers_gives_it(tmp_path, data, model_folder, settings):
    library = pytest.importorskip("sentence_transformers")
    parts = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    scorers = importlib.import_module("sentence_transformers.sentence_transformer.evaluation")
    encoder = parts.Transformer(str(model_folder))
    width = encoder.get_embedding_dimension()
    every = [encoder, parts.Pooling(width, pooling_mode="mean"), parts.Dense(width, 9)]
    prompts = {"query": "a b ", "document": "h "}
    theirs = library.SentenceTransformer(modules=every, prompts=prompts, device="cpu", **settings)
    theirs.save_pretrained(str(tmp_path / "model"))
    found = beir.read(data, examples.task_of("retrieval"))
    documents = dict([*found.documents.items()][:70])  # no two are equal
    right = {query: {*judged} for query, judged in found.judged.items()}
    write_set(tmp_path / "set", documents, found.queries, [(q, d, 1) for q, some in right.items() for d in some])
    search = scorers.InformationRetrievalEvaluator(found.queries, documents, right, precision_recall_at_k=[1, 10])
    texts = [*found.queries.values()]
    pairs = [(a, b, float(len({*a}))) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    pairs += pairs[:2]
    (tmp_path / "set" / "own.tsv").write_text("a\tb\tc\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in pairs))
    similar = scorers.EmbeddingSimilarityEvaluator(*zip(*pairs, strict=True))
    task = replace(examples.task_of("similarity"), folder="", dev="own.tsv", columns=["a", "b"], label="c")
    config = replace(config_of(tmp_path, tmp_path / "model", baseline=False), data=str(tmp_path / "set"))
    for scorer, one in ((search, config), (similar, replace(config, task=task))):
        score, _, files = text_similarity.evaluate(one, tmp_path / one.task.name)
        expected = scorer(theirs)
        for name, value in score.scores.items():
            key = f"{name}_{theirs.similarity_fn_name}" if scorer is similar else f"{theirs.similarity_fn_name}_{name}"
            assert value == pytest.approx(expected[key], abs=1e-4), key
    by_words = json.loads(files["bm25.json"])
    assert by_words[:2] == by_words[-2:]
    expected = stats.spearmanr([score for *_, score in pairs], by_words).statistic
    assert score.systems["BM25"]["scores"]["spearman"] == pytest.approx(expected)


def test_the_model_before_is_of_retrieval_and_similarity_alone(tmp_path):
    with refused(ConfigError, key="before"):
        config_of(tmp_path, tmp_path, "stsb", before="x")
