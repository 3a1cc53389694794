"""The model card says what the manifests of the stages say."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from model.encoders.architectures import build_model
from model.huggingface import bert_format, mask_filling, model_card
from model.training import initial_weights
from pipeline import convert
from pipeline.config import ConvertConfig
from pipeline.shards import ShardInfo, write_shard
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece
from tests.model.sizes import small
from tests.model.tiny_bert import CONFIG, make_vocabulary, our_state
from tests.pipeline.evaluation.byte_level import learn_byte_level
from tests.support import finished
from tests.support.preparing import vocabulary


def test_the_card_says_what_the_run_was(tmp_path):
    state, vocab_folder = our_state(), make_vocabulary(tmp_path / "vocab")
    prepare = finished.manifest(
        "prepare",
        config={"corpus": {"name": "books", "language": "en", "files": []}},
        figures={"documents": {"written": 1234}, "totals": {"tokens": 99000, "validation_documents": 12}},
    )
    config = {"optimizer": {"name": "adamw", "learning_rate": 1e-4}, "batch_size": 256}
    figures = {"steps": 5000, "validation": {"masked_lm_accuracy": 0.4321}}
    train = finished.manifest("train", seconds=7200.0, config=config, figures=figures)
    bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder, [train, prepare])
    text = (tmp_path / "out" / "README.md").read_text()
    for words in (
        "license: ",
        "fill in",
        "language: en",
        "| documents | 1,234 |",
        "| documents held out | 12 |",
        "| learning rate | 0.0001 |",
        "| steps | 5,000 |",
        "| hours | 2.00 |",
        "| masked lm accuracy | 0.4321 |",
    ):
        assert words in text
    assert "The capital of France" in text
    more = replace(prepare, config={"corpus": {"name": "wiki"}})
    bert_format.save(tmp_path / "both", CONFIG, state, vocab_folder, [train, prepare, more])
    text = (tmp_path / "both" / "README.md").read_text()
    for words in ("## Data, 1 of 2", "| corpus | books |", "## Data, 2 of 2", "| corpus | wiki |"):
        assert words in text


@pytest.mark.parametrize("language", ["no", "vi", "zh-yue"])
def test_the_language_is_text_in_the_header(language):
    prepare = finished.manifest("prepare", config={"corpus": {"name": "wiki", "language": language}})
    header = model_card.write(CONFIG, 1, [prepare], {}).split("---\n")[1]
    assert yaml.safe_load(header)["language"] == language
    assert language == "no" or f"language: {language}\n" in header


def test_the_card_names_the_file_that_was_read_and_no_address_that_was_not():
    address = [{"url": "https://example.org/dump.xml.bz2"}]
    corpus = {"name": "wiki", "language": "vi", "path": "/home/me/vi.xml.bz2", "files": address}
    prepare = finished.manifest("prepare", config={"corpus": corpus})
    text = model_card.write(CONFIG, 1, [prepare], {})
    assert "| from | vi.xml.bz2 |" in text
    assert "example.org" not in text
    assert "France" not in text, "an English sentence says nothing of a Vietnamese model"
    mix = {"name": "mix", "parts": {"a": corpus | {"path": None}, "b": {"path": "s3://x/books/"}}}
    assert model_card.sources(mix) == ["https://example.org/dump.xml.bz2", "books"]
    assert model_card.sources({"path": "/a/caf\udce9"}) == [r"caf\udce9"]


def test_a_left_to_right_model_and_a_random_head_are_not_offered_to_fill_masks():
    assert "fill-mask" in model_card.write(CONFIG, 1, [], {})
    assert "fill-mask" not in model_card.write(CONFIG, 1, [], {}, fills=False)
    text = model_card.write(replace(CONFIG, causal=True, name="base"), 1, [], {"example": "a [MASK]"})
    assert "mask" not in text.lower()
    assert "from left to right" in text
    assert "# BERT 2 x 16" in text, "it has not the published size of this name"


def test_what_a_model_continues_is_named_by_its_own_name(tmp_path):
    (tmp_path / "start").mkdir()
    made = finished.manifest("convert", config={"train": "/models/MiniLM"})
    made.write(tmp_path / "start")
    train = finished.manifest("train", config={"start": str(tmp_path / "start")})
    assert "from `MiniLM`" in model_card.write(CONFIG, 1, [train], {})
    plain = replace(train, config={"start": "/models/BERT"})
    assert "from `BERT`" in model_card.write(CONFIG, 1, [plain], {})


def write_texts(folder, tokenizer, texts):
    ids, lengths = tokenizer.encode(texts)
    info = ShardInfo(
        split="validation", pairs="none", tokenizer="t" * 64, vocab_size=tokenizer.size, sequence_length=99, seed=0
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    plain = np.zeros(len(texts), bool)
    write_shard(folder / "validation-00000-of-00001.arrow", info, ids.astype(np.int64), offsets, lengths, plain)


def test_an_example_of_a_byte_level_vocabulary_is_text_with_the_mask_of_its_tokenizer(tmp_path):
    text = "The cap was red. L'île était près d'une naïve ville, l'été. And then"
    tokenizer = learn_byte_level([text, "The wind blew. L'été était là, près d'elle."])
    write_texts(tmp_path, tokenizer, ["ж" * 30, text])  # letters of two tokens: one would be cut
    (found,) = mask_filling.examples(tmp_path, tokenizer, 1)
    before, after = found.split("[MASK]")
    assert before.strip() in text
    assert after in text
    card = model_card.write(CONFIG, 1, [], {"example": found}, "BPE", "<mask>")
    assert "BPE entries" in card
    assert "WordPiece" not in card
    assert "<mask>" in card
    assert "[MASK]" not in card


def test_examples_are_of_the_held_out_folder_of_the_training(tmp_path):
    text = "the old captain told a story about his ship and the men who sailed it home"
    vocabulary(tmp_path, sorted({*text.split()}))
    data = {"dir": str(tmp_path / "prepare"), "validation": [str(tmp_path / "newest")]}
    (tmp_path / "newest").mkdir()
    (tmp_path / "train").mkdir()
    write_texts(tmp_path / "newest", WordPiece.load(tmp_path), [text])
    finished.manifest("train", config={"data": data}).write(tmp_path / "train")
    (found,) = convert.held_out_texts(ConvertConfig(out="out", train=str(tmp_path / "train")), tmp_path)
    assert found == text.replace("ship", "[MASK]")


def test_an_example_is_a_whole_sentence_with_the_word_that_it_hides(tmp_path):
    texts = ["he left . the old captain told a story about ships . and then", "so it was said . no . a lamp was lit"]
    entries = [*SPECIAL, *sorted({word for text in texts for word in text.replace("ships", "ship ##s").split()})]
    tokenizer = WordPiece.load(vocabulary(tmp_path, entries[5:]))
    write_texts(tmp_path, tokenizer, [texts[0] + " he was", *texts])
    found = mask_filling.examples(tmp_path, tokenizer, 2)
    assert found == {"the old captain told a [MASK] about ships.": "story"}


def test_those_of_which_a_model_is_surest_are_shown_and_what_is_typed_as_it_is(tmp_path):
    entries = [*SPECIAL, "a", "b", "c", "d", "e", "f"]
    vocabulary(tmp_path, entries[5:])
    config = small(len(entries), layers=1, positions=32)
    source = initial_weights.InitialWeights(config, build_model(config).state_dict(), [])
    held = {f"{word} [MASK]": word for word in "abcdef"}
    found = convert.samples_of(source, tmp_path, [], held)
    likely = [one["masks"][0][0]["probability"] for one in convert.samples_of(source, tmp_path, list(held), {})]
    assert [one["masks"][0][0]["probability"] for one in found] == sorted(likely)[: -convert.SAMPLES - 1 : -1]
    assert all(held[one["text"]] == one["answer"] for one in found)


def test_examples_are_beginnings_of_held_out_texts_and_the_head_fills_them(tmp_path):
    words = "the old captain told a story about his ship and the men who sailed it"
    texts = ["too short .", *(f"{words} {end} ." for end in "abc")]
    entries = [*SPECIAL, *sorted({word for text in texts for word in text.split()})]
    tokenizer = WordPiece.load(vocabulary(tmp_path, entries[5:]))
    write_texts(tmp_path, tokenizer, texts)
    held = mask_filling.examples(tmp_path, tokenizer, 2)
    assert set(held.values()) == {"ship"}
    found = list(held)
    assert found == [f"{words.replace('ship', '[MASK]')} {end}" for end in "ab"]
    assert f'fill("{found[0]}")' in model_card.write(CONFIG, 1, [], {"example": found[0]})
    assert mask_filling.examples(tmp_path / "gone", tokenizer, 2) == {}
    config = small(len(entries), layers=1, positions=32)
    state = build_model(config).state_dict()
    state["masked_head.bias"][entries.index("captain")] = 50.0
    filled = mask_filling.fill(config, state, tokenizer, found, config.positions)
    assert [one["text"] for one in filled] == found
    for one in filled:
        (likely,) = one["masks"]
        assert (len(likely), likely[0]) == (3, {"word": "captain", "probability": 1.0})
    vocabulary(tmp_path, [*entries[5:], "more"])
    assert mask_filling.examples(tmp_path, WordPiece.load(tmp_path), 2) == {}, "shards of another vocabulary"
    assert not mask_filling.has_head(config, [f"masked_head.bias: {bert_format.INITIALISED}"])
    assert mask_filling.has_head(config, [])


def test_weights_that_were_not_evaluated_have_no_held_out_figures():
    figures = {"steps": 5, "validation": {"masked_lm_loss": 1.5}, "most_frequent_accuracy": 0.25}
    train = finished.manifest("train", figures=figures)
    assert "| most frequent token's share | 0.2500 |" in model_card.write(CONFIG, 1, [train], {})
    bare = replace(train, figures=figures | {"validation": {}})
    text = model_card.write(CONFIG, 1, [bare], {})
    assert "Held-out figures" not in text
    assert "0.2500" not in text


@pytest.mark.parametrize(
    ("corpus", "notes", "licence", "source"),
    [
        ({}, {"dumps of vi.wikipedia.org, 20240701": 1}, "CC BY-SA 4.0", "vi.wikipedia.org, dump of 2024-07-01"),
        ({}, {"b: dumps of en.wikisource.org, 20200101": 2}, "CC BY-SA 3.0", "en.wikisource.org, dump of 2020-01-01"),
        ({"reader": "wikipedia", "files": [{"url": "https://x/dewiki-latest-p.xml"}]}, {}, "BY-SA", "de.wikipedia.org"),
        ({"reader": "cirrussearch", "path": "itwiki_content-20240101-0"}, {}, "4.0", "it.wikipedia.org, dump of 2024"),
        ({"reader": "enterprise", "path": "enwiki-NS0-20220101-x"}, {}, "3.0", "en.wikipedia.org, dump of 2022-01-01"),
        ({"reader": "enterprise", "path": "dewiki_namespace_0.tar.gz"}, {}, "before 20230607", "de.wikipedia.org"),
        ({"reader": "parquet", "path": "hf://datasets/uonlp/CulturaX@main/vi/*.parquet"}, {}, "OSCAR", "CulturaX"),
        ({"parts": {"a": {"reader": "stackexchange", "path": "x"}}}, {}, "CC BY-SA 4.0", "stackexchange.com"),
    ],
)
def test_the_card_names_licence_authors_and_date_of_a_known_text(corpus, notes, licence, source):
    rows = model_card.licence_rows({"name": "x", **corpus}, notes)
    assert licence in rows["licence of the text"]
    assert source in rows["attribution"]
    prepare = finished.manifest("prepare", config={"corpus": corpus}, figures={"notes": notes})
    assert f"| attribution | {rows['attribution']} |" in model_card.write(CONFIG, 1, [prepare], {})


@pytest.mark.parametrize(
    "corpus", [{"reader": "text", "path": "/data/enwiki-20200101/my.txt"}, {"reader": "wikipedia", "path": "dump.xml"}]
)
def test_the_licence_of_a_text_that_is_not_known_is_not_guessed(corpus):
    assert not any(model_card.licence_rows({"name": "x", **corpus}, {"dumps of wiki.example.org": 1}).values())
