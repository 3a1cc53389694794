"""Answers and vectors from the command line, beside those of transformers."""

import dataclasses
import importlib
import io
import json
import shutil
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers

from model.encoders.architectures import build_model
from model.finetuning import loop, saved_model
from model.finetuning.features import TruncationConfig, tokenize
from model.finetuning.heads import HeadConfig
from model.huggingface import bert_format
from pipeline import embed, predict
from pipeline.config import EmbedConfig, PredictConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import beir
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.model.sizes import small
from tests.support import forked
from tests.support.preparing import vocabulary
from tests.support.refusals import refused

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "far", "."]
CONFIG = small(5 + len(WORDS), initializer_range=0.3)


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    return vocabulary(tmp_path_factory.mktemp("vocab"), WORDS)


def saved(folder, vocab, **changes):
    """A model with random weights, in a folder."""
    config = dataclasses.replace(CONFIG, **changes)
    torch.manual_seed(0)
    bert_format.save(folder, config, build_model(config).state_dict(), vocab)
    return folder


@pytest.fixture(scope="module")
def pretrained(vocab, tmp_path_factory):
    return saved(tmp_path_factory.mktemp("model"), vocab)


@pytest.fixture(scope="module")
def modern(vocab, tmp_path_factory):
    modern = {"architecture": "modernbert", "layers": 4, "local_window": 4}
    return saved(tmp_path_factory.mktemp("modern"), vocab, **modern)


def tuned(kind, outputs, labels, vocab, folder, texts=None, *reading):
    model = loop.build(CONFIG, None, HeadConfig(kind, outputs), seed=1)
    saved_model.save(folder, saved_model.SavedModel(model, labels, texts, saved_model.Reading(*reading)), CONFIG, vocab)
    return folder


def answers(folder, text, monkeypatch, capsys, **settings):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    capsys.readouterr()  # what transformers has printed
    predict.predict(PredictConfig(pretrained=str(folder), **settings))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def made_of(folder, kind, *texts):
    """What a class of transformers makes of a text or a pair."""
    given = transformers.AutoTokenizer.from_pretrained(folder)(*texts, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return getattr(transformers, kind).from_pretrained(folder).eval()(**given, output_hidden_states=True)


def embedded(folder, source, out, **settings):
    """The array or the table that is made of a file."""
    embed.embed(EmbedConfig(pretrained=str(folder), input=str(source), out=str(out), **settings))
    return np.load(out) if str(out).endswith("npy") else pa.ipc.open_file(out).read_all()


def vectors(folder, place, text, **settings):
    """The vectors of a text's lines."""
    (place / "in.txt").write_text(text)
    return embedded(folder, place / "in.txt", place / "out.npy", **settings)


def test_masks_are_filled_as_transformers_fills_them(pretrained, monkeypatch, capsys):
    (found,) = answers(pretrained, "The [MASK] sat.\n\n", monkeypatch, capsys, top=3)
    expected = transformers.pipeline("fill-mask", str(pretrained), top_k=3)("The [MASK] sat.")
    assert [w["word"] for w in found["masks"][0]] == [one["token_str"] for one in expected]
    for ours, theirs in zip(found["masks"][0], expected, strict=True):
        assert ours["probability"] == pytest.approx(theirs["score"], abs=1e-5)


def test_what_the_vocabulary_does_not_know_is_said(pretrained, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the [MASK] ขขขขข\n"))
    predict.predict(PredictConfig(pretrained=str(pretrained)))
    said = capsys.readouterr().err
    assert "50.000% of the characters unknown" in said
    assert "warning" in said


@pytest.mark.parametrize("key", ["id", "label"])
def test_vectors_alone_have_no_names(key, tmp_path):
    with refused(ConfigError, key=key):
        EmbedConfig(pretrained="x", input="in.csv", columns=["text"], out="out.npy", **{key: "ref"})


def test_rows_without_text_are_counted(vocab, tmp_path, monkeypatch, capsys):
    folder = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "tuned", texts=1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("note,id\nthe cat,1\n,2\n  ,3\n"))
    predict.predict(PredictConfig(pretrained=str(folder), columns=["note"]))
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "warning: 2 rows without text" in said.err
    vectors(folder, tmp_path, "a cat\n\n")
    assert "warning: 1 row without text" in capsys.readouterr().err


def test_a_modern_model_fills_masks_as_transformers_does_and_judges_no_pairs(modern, monkeypatch, capsys):
    test_masks_are_filled_as_transformers_fills_them(modern, monkeypatch, capsys)
    (found,) = answers(modern, "the [MASK]\tsat .\n", monkeypatch, capsys)
    assert set(found) == {"row", "text", "masks"}
    with refused(InputError, "line 1: ", key="pretrained"):
        answers(modern, "the cat\tsat .\n", monkeypatch, capsys)


def test_a_left_to_right_model_fills_no_masks(vocab, tmp_path, monkeypatch, capsys):
    with refused(InputError, "line 1: ", key="pretrained"):
        answers(saved(tmp_path, vocab, causal=True), "The [MASK] sat.\n", monkeypatch, capsys)


def test_pairs_are_judged_as_transformers_judges_them(pretrained, monkeypatch, capsys):
    found = answers(pretrained, "the cat\tsat .\na dog\tran [MASK]\n", monkeypatch, capsys)
    logits = made_of(pretrained, "BertForNextSentencePrediction", "the cat", "sat .").logits
    assert found[0]["next"] == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-5)
    assert set(found[1]) == {"row", "text", "next", "masks"}


def test_classes_and_their_probabilities_are_those_of_transformers(vocab, tmp_path, monkeypatch, capsys):
    folder = tuned("class", 3, ["bad", "fair", "good"], vocab, tmp_path / "class")
    texts = ["the cat sat", "a dog ran far .", "mat"]
    found = answers(folder, "\n".join(texts), monkeypatch, capsys)
    expected = transformers.pipeline("text-classification", str(folder), top_k=None)(texts)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["label"] == theirs[0]["label"]
        for one in theirs:
            assert ours["probabilities"][one["label"]] == pytest.approx(one["score"], abs=1e-5)
        assert all(len(str(share)) <= len("0.123456") for share in ours["probabilities"].values())
    predict.answerer(PredictConfig(pretrained=str(folder), top=3))
    assert "top=3 has no effect with a fine-tuned model" in capsys.readouterr().err


def test_a_tab_in_a_line_does_not_change_the_answers_to_others(vocab, tmp_path, monkeypatch, capsys):
    folder = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "class")
    lines = ["the cat sat", "a dog\tran far .", "mat", "the\tcat\tsat"]
    together = answers(folder, "\n".join(lines), monkeypatch, capsys)
    for line, found in zip(lines, together, strict=True):
        (alone,) = answers(folder, line, monkeypatch, capsys)
        assert found["text"] == line
        assert found["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-5)


OTHERS = [({"model_input_names": ["input_ids", "attention_mask"]}, "the cat\ta dog")]
OTHERS += [({"truncation_side": "left"}, "far " + "cat " * 40 + "dog")]


@pytest.mark.parametrize(("stated", "text"), OTHERS)
def test_others_tokenizers_are_read_as_transformers_reads_them(vocab, tmp_path, monkeypatch, capsys, stated, text):
    folder = tuned("class", 3, list("abc"), vocab, tmp_path / "tuned")
    for name, changes in (("config.json", {"fine_tuning": {}}), ("tokenizer_config.json", stated)):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | changes))
    size, found = saved_model.load(folder)
    saved_model.save(tmp_path / "again", found, size, folder)
    for place in (folder, tmp_path / "again"):
        found = made_of(place, "AutoModelForSequenceClassification", *text.split("\t"))
        expected = found.logits[0].softmax(-1).tolist()
        (one,) = answers(place, f"{text}\n", monkeypatch, capsys)
        assert [*one["probabilities"].values()] == pytest.approx(expected, abs=1e-5)


def test_a_model_of_pairs_names_a_line_without_a_tab(vocab, tmp_path, monkeypatch, capsys):
    folder = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "pairs", texts=2)
    assert len(answers(folder, "a dog\tran far .\nmat\t.", monkeypatch, capsys)) == 2
    (tmp_path / "in.txt").write_text("a dog\tran .\n\nthe cat sat\n")
    with pytest.raises(InputError, match=r"in\.txt, line 3: .*tab"):
        answers(folder, "", monkeypatch, capsys, input=str(tmp_path / "in.txt"))


def test_scores_tags_answers_and_endings(vocab, tmp_path, monkeypatch, capsys):
    folder = tuned("class", 1, [], vocab, tmp_path / "score")
    (found,) = answers(folder, "the cat\tthe dog", monkeypatch, capsys)
    expected = made_of(folder, "AutoModelForSequenceClassification", "the cat", "the dog").logits
    assert found["score"] == pytest.approx(float(expected[0, 0]), abs=1e-5)

    tags = ["B-PER", "I-PER", "O"]
    folder = tuned("tag", 3, tags, vocab, tmp_path / "tag")
    (found,) = answers(folder, "The cat ran", monkeypatch, capsys)
    best = made_of(folder, "AutoModelForTokenClassification", "The cat ran").logits[0, 1:4].argmax(-1)
    assert found["tags"] == [tags[int(n)] for n in best]
    (found,) = answers(folder, "The cat, (far).", monkeypatch, capsys)
    assert found["words"] == ["The", "cat", ",", "(", "far", ")", "."]
    assert ["The cat, (far)."[start:end] for start, end in found["offsets"]] == found["words"]

    folder = tuned("answer", 2, [], vocab, tmp_path / "answer")
    (found,) = answers(folder, "who sat ?\tThe cat sat.  A dog ran.", monkeypatch, capsys)
    assert found["answer"] in "The cat sat.  A dog ran."

    folder = tuned("choice", 4, [], vocab, tmp_path / "choice")
    (found,) = answers(folder, "the cat\tsat\t\tran\tdog", monkeypatch, capsys)
    assert found["ending"] == ["sat", "", "ran", "dog"][found["place"]] != ""


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("text", ["the cat sat on a mat dog ran far . " * 3, "the\tcat " * 9])
def test_the_part_of_a_text_is_that_of_the_training(vocab, tmp_path, monkeypatch, capsys, truncation, text):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": text}) + "\n")
    folder = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "class", 1, 12, truncation, 3)
    (found,) = answers(folder, text, monkeypatch, capsys)
    columns = {"input": str(tmp_path / "in.jsonl"), "columns": ["text"]}
    (table,) = answers(folder, "", monkeypatch, capsys, **columns)
    samples = tokenize(WordPiece.load(vocab), [text], None, [0.0], TruncationConfig(12, truncation))
    model = saved_model.load(folder)[1].model
    logits = loop.predict(model, samples, torch.device("cpu"))[0]
    expected = torch.tensor(logits).softmax(-1).tolist()
    for one in (found, table):
        assert list(one["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
    assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == 12
    (whole,) = answers(folder, text, monkeypatch, capsys, sequence_length=40)
    assert whole["probabilities"] != pytest.approx(found["probabilities"], abs=1e-6)
    config = json.loads((folder / "config.json").read_text())
    theirs = transformers.AutoConfig.from_pretrained(folder)
    assert theirs.fine_tuning == config["fine_tuning"]
    config.pop("fine_tuning")  # as an older release wrote it
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 40}')
    assert saved_model.load(folder)[1].reading == saved_model.Reading()
    (old,) = answers(folder, text, monkeypatch, capsys)
    assert old["probabilities"] == whole["probabilities"] or truncation != "head"
    for broken in ({"truncation": "middle"}, {"x": 1}, {"stride": 0}, {"sequence_length": "9"}, 3):
        (folder / "config.json").write_text(json.dumps(config | {"fine_tuning": broken}))
        with pytest.raises(InputError):
            saved_model.load(folder)


def test_answers_to_a_table_carry_row_id_and_gold(vocab, tmp_path, monkeypatch, capsys):
    (tmp_path / "in.csv").write_text('id,a,b,label\n9,"the\tcat",sat,yes\n7,dog,"ran\nfar",no\n')
    folder = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "class", 2)
    table = {"input": str(tmp_path / "in.csv"), "columns": ["a", "b"]}
    found = answers(folder, "", monkeypatch, capsys, **table)
    assert [(one["row"], one["id"], one["gold"]) for one in found] == [(1, "9", "yes"), (2, "7", "no")]
    texts = ["the cat\tsat", "dog\tran far"]
    for one, line in zip(found, answers(folder, "\n".join(texts), monkeypatch, capsys), strict=True):
        assert one["probabilities"] == line["probabilities"]
    with pytest.raises(InputError, match="pairs"):
        answers(folder, "", monkeypatch, capsys, input=table["input"], columns=["a"])
    single = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "single", 1)
    with refused(InputError, key="columns"):
        answers(single, "", monkeypatch, capsys, **table)


def test_vectors_of_a_table_are_those_of_its_texts(pretrained, tmp_path):
    (tmp_path / "in.csv").write_text("id,text\n4,the cat\n3,a dog ran\n")
    (tmp_path / "in.txt").write_text("the cat\na dog ran\n")
    vectors = []
    for name, columns in (("in.csv", ["text"]), ("in.txt", [])):
        table = embedded(pretrained, tmp_path / name, tmp_path / "out.arrow", columns=columns)
        vectors.append(table["vector"].to_pylist())
        assert table["text"].to_pylist() == ["the cat", "a dog ran"]
        assert ("id" in table.column_names) == bool(columns)
    assert vectors[0] == vectors[1]


@pytest.mark.parametrize(
    ("text", "message"), [("the cat", "line 1: "), ("\n" + "cat " * 60 + "[MASK]\tthe", "line 2: has 65 tokens")]
)
def test_lines_that_cannot_be_answered_are_named(pretrained, monkeypatch, capsys, text, message):
    with pytest.raises(InputError, match=message):
        answers(pretrained, text, monkeypatch, capsys)


def test_a_mask_with_the_tokenizers_own_name_is_told(tmp_path, monkeypatch, capsys):
    source = build([*SPECIAL, *WORDS], lowercase=True)
    for ours, theirs in zip(SPECIAL, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True):
        source = source.replace(ours, theirs)
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab/tokenizer.json").write_text(source)
    saved(tmp_path / "model", tmp_path / "vocab")
    with pytest.raises(InputError, match=r"write \[MASK\] for <mask>"):
        answers(tmp_path / "model", "the <mask> sat", monkeypatch, capsys)
    (found,) = answers(tmp_path / "model", "the [MASK] sat", monkeypatch, capsys)
    assert len(found["masks"]) == 1


def test_an_input_without_a_line_is_not_answered_by_silence(pretrained, monkeypatch, capsys):
    with refused(InputError, "empty", key="input"):
        answers(pretrained, " \n\n", monkeypatch, capsys)


def test_only_a_head_that_is_missing_is_named(pretrained, tmp_path, monkeypatch, capsys):
    theirs = transformers.BertForMaskedLM.from_pretrained(pretrained)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((pretrained / "tokenizer.json").read_bytes())
    with pytest.raises(InputError, match=r"line 1: .*next_sentence and pooler"):
        answers(tmp_path, "the cat\tsat .", monkeypatch, capsys)
    (found,) = answers(tmp_path, "the cat\tsat [MASK]", monkeypatch, capsys)
    assert set(found) == {"row", "text", "masks"}
    pooled = transformers.BertModel.from_pretrained(pretrained)
    pooled.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"line 1: .*next_sentence") as caught:
        answers(tmp_path, "the cat\tsat .", monkeypatch, capsys)
    assert "pooler" not in str(caught.value)
    with refused(InputError, r"line 1: .*masked_head", key="pretrained"):
        answers(tmp_path, "the [MASK]", monkeypatch, capsys)


def hidden_states(folder, text):
    return [states[0] for states in made_of(folder, "AutoModel", text).hidden_states]


@pytest.mark.parametrize("model", ["pretrained", "modern"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_vectors_are_those_of_transformers(request, tmp_path, model, pooling):
    pretrained = request.getfixturevalue(model)
    lines = ["the cat sat", "", "a dog ran far . the mat"]
    found = vectors(pretrained, tmp_path, "\n".join(lines) + "\n", layers=[0, -1], mix="concat", pooling=pooling)
    assert found.shape == (3, 32)
    last = vectors(pretrained, tmp_path, "\n".join(lines) + "\n", pooling=pooling)
    np.testing.assert_allclose(last, found[:, 16:], atol=1e-6)
    for line, vector in zip(lines, found, strict=True):
        states = hidden_states(pretrained, line)
        x = torch.cat([states[0], states[-1]], -1)
        expected = {"cls": x[0], "mean": x.mean(0), "max": x.amax(0)}[pooling]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def sentence_model(source, folder, settings, *kinds):
    """Return a folder as sentence-transformers writes it."""
    shutil.copytree(source, folder)
    modules = [
        {"path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(("Transformer", "Pooling", *kinds))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(settings))
    return folder


POOLED = [({"pooling_mode_max_tokens": True}, "max"), ({"pooling_mode": "mean"}, "mean")]
POOLED.append(({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"))


@pytest.mark.parametrize(("settings", "pooling"), POOLED)
def test_a_sentence_model_is_pooled_as_it_says(pretrained, tmp_path, settings, pooling):
    folder = sentence_model(pretrained, tmp_path / "model", settings)
    text = "the cat\na dog ran far . the mat sat on a mat\n"
    found = vectors(folder, tmp_path, text)
    expected = vectors(pretrained, tmp_path, text, pooling=pooling, sequence_length=8)
    np.testing.assert_allclose(found, expected, atol=1e-6)


PROMPTS, SIZE = "config_sentence_transformers.json", {"do_lower_case": False, "model_max_length": 4}
READ = [(PROMPTS, {"prompts": {"q": "a mat "}, "default_prompt_name": "q"}, "cat", "a mat cat")]
READ += [(PROMPTS, {"prompts": {"q": "a mat "}, "default_prompt_name": None}, "cat", "cat")]
READ += [("tokenizer_config.json", SIZE, "the cat sat", "the cat")]
READ += [("sentence_bert_config.json", {"do_lower_case": True}, "the CAT", "the cat")]


@pytest.mark.parametrize(("file", "content", "text", "reads"), READ)
def test_a_sentence_model_reads_texts_as_its_files_say(pretrained, tmp_path, file, content, text, reads):
    folder = sentence_model(pretrained, tmp_path / "model", {"pooling_mode": "mean"})
    cased = json.loads((folder / "tokenizer_config.json").read_text()) | {"do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(cased))
    (folder / "sentence_bert_config.json").write_text("{}")
    before = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(before | content))
    found = vectors(folder, tmp_path, text + "\n")
    np.testing.assert_allclose(found, vectors(folder, tmp_path, reads + "\n", pooling="mean"), atol=1e-6)


@pytest.mark.parametrize("kinds", [["Dense"], ["Dense", "Normalize"], ["Dense", "Dense"]])
def test_dense_modules_and_prompts_by_name_are_those_of_sentence_transformers(pretrained, tmp_path, kinds):
    library = pytest.importorskip("sentence_transformers")
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    encoder = modules.Transformer(str(pretrained), max_seq_length=8)
    made = {"Dense": lambda: modules.Dense(16, 16), "Normalize": modules.Normalize}
    every = [encoder, modules.Pooling(16, pooling_mode="mean"), *(made[kind]() for kind in kinds)]
    theirs = library.SentenceTransformer(modules=every, prompts={"query": "a mat ", "document": ""}, device="cpu")
    folder = tmp_path / "model"
    theirs.save_pretrained(str(folder))
    lines = ["the cat sat", "a dog ran far . the mat"]
    for settings, expected in (({"prompt": "query"}, theirs.encode_query(lines)), ({}, theirs.encode(lines))):
        found = vectors(folder, tmp_path, "\n".join(lines) + "\n", **settings)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with refused(ConfigError, key="prompt"):
        vectors(folder, tmp_path, "the cat\n", prompt="passage")


@pytest.mark.parametrize("end", ["npy", "arrow"])
def test_half_of_the_bytes_hold_the_same_vectors_to_three_digits(pretrained, tmp_path, end):
    (tmp_path / "in.txt").write_text("the cat sat\na dog ran\n")
    found = {}
    for dtype in ("float32", "float16"):
        made = embedded(pretrained, tmp_path / "in.txt", tmp_path / f"{dtype}.{end}", dtype=dtype)
        found[dtype] = np.stack(list(made if end == "npy" else made["vector"].to_numpy()))
        assert found[dtype].dtype == dtype
    np.testing.assert_allclose(found["float16"], found["float32"], rtol=1e-3, atol=1e-6)


def test_documents_of_beir_are_read_after_their_titles_and_named_by_their_ids(pretrained, tmp_path):
    rows = [{"_id": "d1", "title": "the cat", "text": "sat"}, {"_id": "d2", "title": "", "text": "a dog \ud83d"}]
    rows += [{"_id": 3, "title": 7, "text": "a"}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = embedded(pretrained, tmp_path / "corpus.jsonl", tmp_path / "out.arrow")
    read = dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))
    assert beir.texts(tmp_path / "corpus.jsonl") == read == {"d1": "the cat sat", "d2": "a dog", "3": "7 a"}


MEAN = {"pooling_mode_mean_tokens": True}
OTHERWISE = [(MEAN, ["LayerNorm"]), (MEAN | {"pooling_mode_cls_token": True}, [])]
OTHERWISE.append(({"pooling_mode_lasttoken": True}, []))


@pytest.mark.parametrize(("settings", "kinds"), OTHERWISE)
def test_what_a_sentence_model_does_otherwise_is_refused(pretrained, tmp_path, settings, kinds):
    folder = sentence_model(pretrained, tmp_path / "model", settings, *kinds)
    with refused(ConfigError, key="pretrained"):
        vectors(folder, tmp_path, "the cat\n")
    vectors(folder, tmp_path, "the cat\n", pooling="mean")


def test_lines_of_standard_input_have_vectors_too(pretrained, tmp_path, monkeypatch):
    text, out = "the cat sat\n\na dog\n", str(tmp_path / "stdin.npy")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    embed.embed(EmbedConfig(pretrained=str(pretrained), out=out))
    assert np.array_equal(np.load(out), vectors(pretrained, tmp_path, text))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with refused(InputError, "empty", key="input"):
        embed.embed(EmbedConfig(pretrained=str(pretrained), out=out))


def test_tokens_and_their_vectors_go_into_arrow(pretrained, tmp_path):
    (tmp_path / "in.txt").write_text("The cat\nunknown\n")
    table = embedded(pretrained, tmp_path / "in.txt", tmp_path / "out.arrow", pooling="tokens")
    assert table["tokens"].to_pylist() == [["[CLS]", "the", "cat", "[SEP]"], ["[CLS]", "[UNK]", "[SEP]"]]
    expected = hidden_states(pretrained, "The cat")[-1]
    np.testing.assert_allclose(table["vectors"][0].as_py(), expected, atol=1e-5)


def test_a_folder_without_a_model_is_told_from_one_that_has_it(pretrained, tmp_path):
    with refused(InputError, r"pipeline\.convert", path=str(tmp_path / "gone")):
        predict.answerer(PredictConfig(pretrained=str(tmp_path / "gone")))
    work = tmp_path / "work"
    for made in ("train", "evaluate-own"):
        (work / made).mkdir(parents=True)
    (work / "convert").symlink_to(pretrained)
    (work / "evaluate-own" / "model").symlink_to(pretrained)
    for place, model in ((work, "convert"), (work / "train", "convert"), (work / "evaluate-own", "evaluate-own/model")):
        with pytest.raises(InputError, match=f"{place}: .*; use {work}/{model}"):
            embedded(place, "in.txt", "x.npy")


@pytest.mark.parametrize("name", ["google/bert_uncased_L-2", "bert-base-uncased"])
def test_a_name_of_the_hub_is_told_how_to_be_a_folder(name):
    with refused(InputError, f"hf download {name} ", path=name):
        predict.answerer(PredictConfig(pretrained=name))


def test_settings_that_cannot_be_are_refused(pretrained, tmp_path):
    common = {"pretrained": str(pretrained), "input": "in.txt"}
    with refused(ConfigError, r"\.arrow", key="out"):
        EmbedConfig(**common, out="x.npy", pooling="tokens")
    with refused(ConfigError, key="layers"):
        embed.embed(EmbedConfig(**common, out="x.npy", layers=[3]))
    with refused(InputError, path="in.txt"):
        embed.embed(EmbedConfig(**common, out=str(tmp_path / "x.npy")))
    (tmp_path / "in.txt").write_text("cat\n")
    with pytest.raises(InputError, match=r"out=.*in\.txt/x\.npy: "):
        embedded(pretrained, tmp_path / "in.txt", tmp_path / "in.txt/x.npy")


def test_vectors_go_into_a_new_folder_and_a_failure_leaves_nothing(pretrained, tmp_path):
    (tmp_path / "in.txt").write_text("the cat\n")
    out = tmp_path / "new" / "x.npy"
    embedded(pretrained, tmp_path / "in.txt", out)
    with pytest.raises(TypeError), embed.new_file(out) as path:
        path.write_bytes("half")
    assert (list(out.parent.iterdir()), np.load(out).shape) == ([out], (1, 16))


def test_the_commands_work(pretrained, tmp_path):
    (tmp_path / "in.txt").write_text("the [MASK]\n")
    settings = [f"pretrained={pretrained}", f"input={tmp_path / 'in.txt'}"]
    done = forked.module("pipeline.predict", *settings)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["masks"][0]) == 5
    done = forked.module("pipeline.embed", *settings, f"out={tmp_path / 'out.npy'}")
    assert done.returncode == 0, done.stderr
    assert "1 row, vectors of 16" in done.stdout


def test_more_tokens_than_positions_are_refused_by_all(pretrained, vocab, tmp_path, monkeypatch, capsys):
    classes = tuned("class", 2, ["no", "yes"], vocab, tmp_path / "model")
    more = CONFIG.positions + 1
    for folder, line in ((pretrained, "the [MASK]\n"), (classes, "the cat\n")):
        with refused(ConfigError, f"the model has {CONFIG.positions} positions", key="sequence_length"):
            answers(folder, line, monkeypatch, capsys, sequence_length=more)
        assert answers(folder, line, monkeypatch, capsys, sequence_length=CONFIG.positions)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n"))
    settings = EmbedConfig(pretrained=str(pretrained), out=str(tmp_path / "a.npy"), sequence_length=more)
    with refused(ConfigError, f"the model has {CONFIG.positions} positions", key="sequence_length"):
        embed.embed(settings)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_model_is_read_as_far_as_it_has_learnt(vocab, tmp_path, monkeypatch, capsys, kind):
    size = dataclasses.replace(CONFIG, architecture=kind, local_window=4)
    bert_format.save(tmp_path, size, build_model(size).state_dict(), vocab, learnt=12)

    def filled(words, **settings):
        monkeypatch.setattr(sys, "stdin", io.StringIO(" ".join(words)))
        predict.predict(PredictConfig(pretrained=str(tmp_path), **settings))
        out, err = capsys.readouterr()
        return json.loads(out)["masks"], "1 text read in part" in err, "beyond the 12 tokens" in err

    words = [*(WORDS * 2), "[MASK]", *WORDS]
    late, whole = filled(words), filled(words, sequence_length=40)
    assert (late[1:], whole[1:]) == ((True, False), (False, True))
    assert late[0] == filled(words[15:25])[0] != whole[0], "by the ten tokens around it"
    assert filled(["[MASK]", *words])[0][1:] == late[0]
    lines = [" ".join(part) + "\n" for part in (WORDS * 3, WORDS)]
    found, cut = (vectors(tmp_path, tmp_path, line) for line in lines)
    assert np.array_equal(found, cut)
    assert not np.allclose(found, vectors(tmp_path, tmp_path, lines[0], sequence_length=32))


def test_pairs_are_cut_as_in_training(pretrained, monkeypatch, capsys):
    long, cut = answers(pretrained, f"{'cat ' * 60}\tthe dog\n{'cat ' * 35}\tthe dog", monkeypatch, capsys)
    assert long["next"] == cut["next"]
