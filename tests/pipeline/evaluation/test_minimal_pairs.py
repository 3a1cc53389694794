"""Minimal pairs: official formats are read, and tables and intervals follow from the scores."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from transformers import BertForMaskedLM

from model.encoders.architectures import build_model
from model.huggingface import bert_format
from model.training import checkpoint
from pipeline import evaluate
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import examples, zero_shot
from pipeline.evaluation.zero_shot import Pairs
from pipeline.records.metrics import PairScore
from pipeline.reporting import minimal_pair_tables
from pipeline.stages import stage
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.model.sizes import small
from tests.pipeline.evaluation.byte_level import learn_byte_level
from tests.pipeline.evaluation.letter_model import write_letter_model
from tests.support import finished
from tests.support.refusals import refused

WORDS = [*SPECIAL, *"abcdefgh", ".", *(f"##{letter}" for letter in "abcdefgh")]
CONFIG = small(len(WORDS), initializer_range=0.2)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tiny model with random weights whose words are letters."""
    return write_letter_model(tmp_path_factory, CONFIG, WORDS)


def write_blimp(data, rows=20):
    """Two paradigms of one phenomenon and one of another, and a summary that is no paradigm."""
    folder = data / "blimp"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for name, term in (("agree_1", "agreement"), ("agree_2", "agreement"), ("island", "islands")):
        lines = []
        for number in range(rows):
            good, bad = (" ".join(draw.choice(list("abcdefgh"), 5)) for _ in range(2))
            row = {"sentence_good": f"{good} .", "sentence_bad": f"{bad} .", "pairID": str(number)}
            row |= {"field": "syntax", "linguistics_term": term, "UID": name}
            lines.append(json.dumps(row))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "models_summary.jsonl").write_text('{"UID": "agree_1", "lstm": 0.5}\n')


def config_of(tmp_path, model, **settings):
    task = settings.pop("task", examples.task_of("blimp"))
    places = {"workdir": str(tmp_path), "out": str(tmp_path / "out"), "data": str(tmp_path / "data")}
    return EvaluateConfig(task=task, pretrained=str(model), threads=1, **places, **settings)


def test_blimp_is_scored_without_training(tmp_path, model_folder):
    write_blimp(tmp_path / "data")
    config = config_of(tmp_path, model_folder)
    manifest = stage.run("evaluate", config, evaluate.make, in_place=True)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found == manifest.figures
    assert list(found["tables"]["paradigms"]) == ["agree_1", "agree_2", "island"]
    assert [one["pairs"] for one in found["tables"]["phenomena"].values()] == [40, 20]
    lines = (tmp_path / "out" / "scores.tsv").read_text().splitlines()[1:]
    right = [float(good) >= float(bad) for _, good, bad in map(str.split, lines)]
    assert found["scores"]["micro"] == pytest.approx(np.mean(right))
    assert found["score"] == pytest.approx(np.mean(np.reshape(right, (3, 20)).mean(1)))
    low, high = found["interval"]
    assert low < found["score"] < high
    assert found["baseline"] is not None
    assert len(found["other_files"]) == 1


def test_a_name_with_a_tab_is_one_cell_of_the_scores():
    pairs = Pairs(["a"], ["b"], [("", "")], ["an\tisland\neffect"])
    lines = zero_shot.scores_table(pairs, np.array([[-1.0, -2.0]])).split("\n")
    assert lines == ["paradigm\tgood\tbad", "an island effect\t-1.000000\t-2.000000", ""]


def test_the_chosen_sentences_are_those_of_the_scores(tmp_path, model_folder):
    write_blimp(tmp_path / "data")
    config = config_of(tmp_path, model_folder, baseline=False)
    found = stage.run("evaluate", config, evaluate.make, in_place=True).figures
    chosen = json.loads((tmp_path / "out" / "predictions.json").read_text())
    rows = (tmp_path / "data" / "blimp" / "island.jsonl").read_text().splitlines()
    good = [json.loads(row)["sentence_good"] for row in rows]
    listed = chosen["island"]["predictions"]
    assert [one["id"] for one in listed] == [f"island_{n}" for n in range(20)]
    share = np.mean([one["pred"] == text for one, text in zip(listed, good, strict=True)])
    assert share == pytest.approx(found["tables"]["paradigms"]["island"]["accuracy"])


def test_scores_that_are_there_are_not_computed_again(tmp_path, model_folder):
    write_blimp(tmp_path / "data")
    config = config_of(tmp_path, model_folder, baseline=False)
    stage.run("evaluate", config, evaluate.make, in_place=True)
    path = tmp_path / "out" / "runs" / "pretrained-convert.npy"
    np.save(path, np.zeros((60, 2)))  # seen by what reads it
    (tmp_path / "out" / "manifest.json").unlink()
    found = stage.run("evaluate", config, evaluate.make, in_place=True).figures
    assert found["ties"] == 60
    other = config_of(tmp_path, model_folder, baseline=False, score="word_l2r")
    assert stage.run("evaluate", other, evaluate.make, in_place=True).figures["ties"] < 60
    np.save(path, np.zeros((60, 2)))
    path.with_suffix(".json").write_bytes(b"\0")  # a disk that failed
    (tmp_path / "out" / "manifest.json").unlink()
    assert stage.run("evaluate", other, evaluate.make, in_place=True).figures["ties"] < 60


def test_a_tie_is_right_as_the_first_of_equals_is_taken():
    right = zero_shot.is_right(np.array([[-1.0, -1.0], [-2.0, -1.0], [-3.0, -4.0]]))
    assert right.tolist() == [True, False, True]


def test_an_interval_over_paradigms_is_that_of_scipys_bootstrap():
    sizes = {"a": 40, "b": 100, "c": 300}
    names = [name for name, size in sizes.items() for _ in range(size)]
    right = np.random.default_rng(1).random(440) < np.repeat([0.9, 0.7, 0.5], list(sizes.values()))
    none = ("", "")
    found = zero_shot.accuracies(
        Pairs(["g"] * 440, ["b"] * 440, [none] * 440, names, dict.fromkeys(sizes, none)), right, 0
    )["macro"]
    parts = np.split(right.astype(float), [40, 140])
    macro, draws = lambda *drawn, axis: np.mean([part.mean(axis) for part in drawn], axis=0), np.random.default_rng(2)
    theirs = stats.bootstrap(parts, macro, method="percentile", rng=draws)
    assert found["accuracy"] == pytest.approx(np.mean([part.mean() for part in parts]))
    assert found["interval"] == pytest.approx(list(theirs.confidence_interval), abs=theirs.standard_error / 5)


GOOD_BAD = '"sentence_good": "a b", "sentence_bad": "a c"'
EWOK = '{"Domain": "social", "Context1": "a b.", "Context2": "a c.", "Target1": "d", "Target2": "e"}\n'
COMPS = {"property_phrase": "d e", "prefix_acceptable": "a", "prefix_unacceptable": "b"}
BLIMP_NL = 'sentence_good,sentence_bad,linguistic_phenomenon,paradigm\n"a b","a c",Anaphor,x1\n'
ZHO = f'{{{GOOD_BAD}, "UID": "BA_deletion", "phenomenon": "BA"}}'
FORMATS = {
    "blimp_supplement": ("supplement_filtered/turn_taking.jsonl", f"{{{GOOD_BAD}}}\n"),
    "zhoblimp": ("ZhoBLiMP/BA_deletion.jsonl", ZHO),
    "blimp_nl": ("blimp_nl/all.csv", BLIMP_NL),
    "multiblimp": ("eng/data.tsv", 'sen\twrong_sen\tphenomenon\n"a ""b"" c"\ta d\tSV-#\na b\ta c\tSV-P\n'),
    "ewok": ("ewok_filtered/social.jsonl", EWOK),
    "comps": ("comps/comps_base.jsonl", json.dumps(COMPS)),
}


def read(tmp_path, name):
    path, content = FORMATS[name]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(content)
    task = examples.task_of(name)
    return zero_shot.read_pairs(str(tmp_path), task), task


def test_sets_without_paradigms_take_the_names_of_their_files(tmp_path):
    pairs, _ = read(tmp_path, "blimp_supplement")
    assert (pairs.good, pairs.bad, pairs.paradigms) == (["a b"], ["a c"], ["turn_taking"])


@pytest.mark.parametrize(
    ("name", "paradigms", "groups"),
    [
        ("zhoblimp", ["BA_deletion"], {"BA_deletion": ("BA", "")}),
        ("blimp_nl", ["x1"], {"x1": ("Anaphor", "")}),
        ("multiblimp", ["SV-#", "SV-P"], {"SV-#": ("", ""), "SV-P": ("", "")}),
    ],
)
def test_official_columns_are_read(tmp_path, name, paradigms, groups):
    pairs, _ = read(tmp_path, name)
    assert (pairs.paradigms, pairs.groups) == (paradigms, groups)


def test_quotation_marks_of_pandas_are_no_text(tmp_path):
    assert read(tmp_path, "multiblimp")[0].good[0] == 'a "b" c'


@pytest.mark.parametrize(
    ("name", "contexts", "sides"), [("ewok", ("a b.", "a b."), ("d", "e")), ("comps", ("a", "b"), ("d e", "d e"))]
)
def test_contexts_are_read_and_only_what_follows_them_is_scored(tmp_path, model_folder, name, contexts, sides):
    pairs, _ = read(tmp_path, name)
    assert pairs.contexts == [contexts]
    wordpiece = WordPiece.load(model_folder)
    sequences, first = zero_shot.framed(wordpiece, pairs)
    for sequence, start, context, side in zip(sequences, first, contexts, sides, strict=True):
        whole = wordpiece.encode([f"{context} {side}"])[0].tolist()
        assert sequence.tolist() == [wordpiece.cls, *whole, wordpiece.sep]
        assert sequence[start:-1].tolist() == wordpiece.encode([side])[0].tolist()


@pytest.mark.parametrize("prefix_space", [False, True])
def test_sentences_after_a_context_have_the_ids_that_they_have_in_the_text(prefix_space):
    bpe = learn_byte_level(["I live in Paris . the cat the list"] * 9, prefix_space)
    contexts = [("I live in Paris .", "the list"), ("", "")]
    pairs = Pairs(["the cat", "the cat"], ["the list", "the list"], contexts, ["a", "a"])
    sequences, first = zero_shot.framed(bpe, pairs)
    texts = [(contexts[0][0], "the cat"), ("", "the cat"), (contexts[0][1], "the list"), ("", "the list")]
    for sequence, start, (context, side) in zip(sequences, first, texts, strict=True):
        before, whole = (
            bpe.library.encode(text, add_special_tokens=False).ids
            for text in (context, f"{context} {side}" if context else side)
        )
        assert (sequence.tolist(), start) == ([bpe.cls, *whole, bpe.sep], 1 + len(before))


@torch.no_grad()
def test_the_rest_of_a_word_is_masked_with_a_byte_level_bpe_too(tmp_path):
    bpe = learn_byte_level(["the cat saw a dog in Paris ."] * 9)
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "tokenizer.json").write_text(bpe.library.to_str())
    torch.manual_seed(0)
    config = replace(CONFIG, vocab_size=bpe.size)
    folder = tmp_path / "convert"
    bert_format.save(folder, config, build_model(config).state_dict(), tmp_path / "vocab")
    sides = ["the doggies .", "unsaid catnip", "the", "na\u00efve \U0001f600"]
    write_pairs(tmp_path, [(sides[0], sides[1]), (sides[2], sides[3])])
    evaluated(config_of(tmp_path, folder, baseline=False, score="word_l2r"))
    theirs = BertForMaskedLM.from_pretrained(folder).eval()
    expected = []
    for text in sides:
        encoded = bpe.library.encode(text, add_special_tokens=False)
        words = np.array([-1, *encoded.word_ids, -1])
        ids = torch.tensor([[bpe.cls, *encoded.ids, bpe.sep]])
        total = 0.0
        for place in range(1, len(words) - 1):
            masked = ids.clone()
            rest = np.flatnonzero(words[place:] == words[place]) + place
            masked[0, rest] = bpe.mask
            logits = theirs(input_ids=masked).logits.log_softmax(-1)
            total += float(logits[0, place, ids[0, place]])
        expected.append(total)
    rows = (tmp_path / "out" / "scores.tsv").read_text().splitlines()[1:]
    found = [float(score) for row in rows for score in row.split("\t")[1:]]
    assert found == pytest.approx(expected, abs=1e-4)


def test_words_are_asked_of_a_tokenizer_that_has_them():
    bpe = learn_byte_level(["the cat saw"] * 9)
    assert bpe.divides_words
    marks = bpe.word_marks(["the cats", "", "a"])
    for text, found in zip(["the cats", "", "a"], marks, strict=True):
        words = bpe.library.encode(text, add_special_tokens=False).word_ids
        assert found.tolist() == [n > 0 and words[n] == words[n - 1] for n in range(len(words))]
    spec = json.loads(bpe.library.to_str()) | {"pre_tokenizer": None}
    pairs = Pairs(["a b"], ["b a"], [("", "")], ["p"])
    with refused(InputError, key="score"):
        zero_shot.continuations(WordPiece(json.dumps(spec)), pairs, np.array([1, 1]))


def write_pairs(tmp_path, sides):
    """A paradigm of these good and bad sentences."""
    rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in sides]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))


def evaluated(config):
    """The results of an evaluation."""
    return stage.run("evaluate", config, evaluate.make, in_place=True).figures


def test_sentences_are_scored_as_far_as_a_model_has_learnt(tmp_path, model_folder):
    write_pairs(tmp_path, [("a b c d e f", "b a c d e f")])
    short = shutil.copytree(model_folder, tmp_path / "short")
    (short / "tokenizer_config.json").write_text('{"model_max_length": 7}')
    with refused(InputError, "set sequence_length=8", key="pretrained"):
        evaluated(config_of(tmp_path, short, baseline=False))
    beyond, whole = (
        evaluated(config_of(tmp_path, folder, baseline=False, sequence_length=8)) for folder in (short, model_folder)
    )
    assert beyond["tables"] == whole["tables"]


def test_a_causal_model_says_that_it_scores_by_likelihood(tmp_path):
    vocab = tmp_path / "vocab"
    vocab.mkdir()
    (vocab / "tokenizer.json").write_text(build(WORDS, lowercase=True))
    config = replace(CONFIG, causal=True)
    folder = tmp_path / "convert"
    bert_format.save(folder, config, build_model(config).state_dict(), vocab)
    write_pairs(tmp_path, [("a b", "b a"), ("a", "A")])
    found = evaluated(config_of(tmp_path, folder, baseline=False))
    assert (found["method"], found["ties"]) == ("likelihood", 1)
    assert "likelihood" in minimal_pair_tables.note(PairScore.from_json(found))
    assert "pseudo" not in minimal_pair_tables.note(PairScore.from_json(found))


def test_predictions_of_comps_tell_which_concept_was_chosen(tmp_path, model_folder):
    """As the BabyLM pipeline writes them: whole sentences, and names of its own."""
    folder = tmp_path / "data" / "comps"
    folder.mkdir(parents=True)
    row = {"property_phrase": "d e", "prefix_acceptable": "a", "prefix_unacceptable": "b"}
    for name in ("comps_base", "comps_wugs_dist-in-between"):
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    config = config_of(tmp_path, model_folder, task=examples.task_of("comps"), baseline=False)
    found = evaluated(config)
    chosen = json.loads((tmp_path / "out" / "predictions.json").read_text())
    pred = "a d e" if found["score"] else "b d e"
    assert chosen == {
        name: {"predictions": [{"id": f"{name}_0", "pred": pred}]} for name in ("base", "wugs_dist_in_between")
    }


def test_a_zip_file_and_a_folder_of_the_files_themselves_are_read_too(tmp_path):
    import zipfile

    write_blimp(tmp_path / "data")
    task = examples.task_of("blimp")
    expected = zero_shot.read_pairs(str(tmp_path / "data"), task)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        for path in (tmp_path / "data" / "blimp").iterdir():
            file.write(path, f"blimp/{path.name}")
    for place in (tmp_path / "all.zip", tmp_path / "data" / "blimp"):
        assert zero_shot.read_pairs(str(place), task).good == expected.good
    few = zero_shot.read_pairs(str(tmp_path / "data"), task, 3)
    assert few.good == [good for number, good in enumerate(expected.good) if number % 20 < 3]


def test_mistakes_name_the_key(tmp_path, model_folder):
    task = examples.task_of("blimp")
    with refused(InputError, key="data"):
        zero_shot.read_pairs(str(tmp_path / "nowhere"), task)
    write_blimp(tmp_path / "data")
    bad = TaskConfig(**{**vars(task), "columns": ["good", "bad"]})
    with refused(InputError, key="data"):
        zero_shot.read_pairs(str(tmp_path / "data"), bad)
    half = TaskConfig(**{**vars(task), "columns": ["sentence_good", "Not {sentence_bad}"], "contexts": ["bad"]})
    with pytest.raises(InputError, match="'bad'"):
        zero_shot.read_pairs(str(tmp_path / "data"), half)
    nowhere = config_of(tmp_path, tmp_path / "no-model")
    with refused(InputError, path=nowhere.pretrained):
        zero_shot.candidates(nowhere)
    with refused(InputError, key="pretrained", value=nowhere.pretrained):
        zero_shot.candidates(replace(nowhere, checkpoints="all"))
    with pytest.raises(ConfigError, match="checkpoints"):
        config_of(tmp_path, model_folder, task=examples.task_of("cola"), checkpoints="all")


def test_a_checkpoint_of_another_vocabulary_is_refused(tmp_path):
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "tokenizer.json").write_text(build(WORDS, lowercase=True))
    state = finished.state(2, model=vars(CONFIG), tokenizer="of another")
    run = tmp_path / "train" / "checkpoints" / "run"
    path = checkpoint.write(run, state, build_model(CONFIG).state_dict(), {})
    write_pairs(tmp_path, [("a b", "b a")])
    with refused(InputError, key="pretrained", path=str(path)):
        evaluated(config_of(tmp_path, tmp_path / "train", checkpoints="all"))


def test_a_model_without_its_masked_lm_head_is_refused(tmp_path, model_folder):
    write_blimp(tmp_path / "data")
    bare = tmp_path / "bare"
    shutil.copytree(model_folder, bare)
    weights = load_file(bare / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("cls.")}
    save_file(kept, bare / "model.safetensors", metadata={"format": "pt"})
    with refused(InputError, key="pretrained", path=str(bare)):
        stage.run("evaluate", config_of(tmp_path, bare), evaluate.make, in_place=True)


def test_a_column_without_a_name_is_no_column_of_the_task(tmp_path):
    """As pandas writes its index."""
    (tmp_path / "data.tsv").write_text("\tsen\twrong_sen\tphenomenon\n7\ta\tb\tSV\n")
    pairs = zero_shot.read_pairs(str(tmp_path), examples.task_of("multiblimp"))
    assert (pairs.contexts, pairs.groups) == ([("", "")], {"SV": ("", "")})


ROW = {"sentence_good": "a", "sentence_bad": "b", "UID": "x", "linguistics_term": "t"}


@pytest.mark.parametrize(
    ("rows", "good", "faults"),
    [
        ([ROW | {"note": "n"}, ROW], ["a", "a"], []),
        ([{"sentence_good": "a"}, ROW], ["a"], ["row 1: 'sentence_bad' is missing"]),
        ([ROW, ROW | {"sentence_good": 5}], ["a", "5"], []),
        ([ROW, ROW | {"sentence_good": None}], ["a"], ["row 2: 'sentence_good' is missing"]),
        ([ROW, ROW | {"sentence_bad": "\u200b"}], ["a"], ["line 2: a sentence is empty"]),
        ([ROW | {"sentence_good": "c \ud83d"}], ["c"], []),
    ],
)
def test_only_rows_without_two_sentences_are_left_out(tmp_path, rows, good, faults):
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = zero_shot.read_pairs(str(tmp_path), examples.task_of("blimp"))
    assert (pairs.good, pairs.malformed) == (good, [f"{tmp_path}/p.jsonl, {fault}" for fault in faults])


def test_columns_without_names_are_numbers(tmp_path):
    (tmp_path / "p.tsv").write_text("a\tb\nc\td\n")
    task = replace(examples.task_of("blimp"), header=False, columns=["1", "0"], dev="p.tsv")
    assert zero_shot.read_pairs(str(tmp_path), task).good == ["b", "d"]


@pytest.mark.parametrize("end", ["\r\n\r\n", "\n \n", "\n\n\n", ""])
def test_blank_lines_are_no_rows(tmp_path, end):
    row = json.dumps(ROW)
    (tmp_path / "p.jsonl").write_bytes(f"\ufeff{row}\r\n\r\n{row}{end}".encode())
    pairs = zero_shot.read_pairs(str(tmp_path), examples.task_of("blimp"))
    assert pairs.good == ["a", "a"]
