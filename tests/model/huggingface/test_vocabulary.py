"""A written tokenizer reads texts and pairs as training read them, by transformers' own account."""

import dataclasses
import json

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from model.encoders.architectures import build_model
from model.finetuning import loop, saved_model
from model.finetuning.heads import HeadConfig
from model.huggingface import bert_format, vocabulary
from pipeline.tokenization.pretokenize import OLD_LONG_WORDS
from pipeline.tokenization.wordpiece import SPECIAL, PairFrame, WordPiece, build
from tests.model.tiny_bert import CONFIG, WORDS

PAIRS = [("the abc",), ("The Über.", "uber 中文"), ("a b", "中"), ("b", "a a a")]
FRAME = {"special_tokens": [("[CLS]", 2), ("[SEP]", 3)]}


def wordpiece():
    return Tokenizer.from_str(build(WORDS))


def byte_level():
    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    library = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_special_tokens(list(SPECIAL))
    return library


def unigram():
    pieces = [*SPECIAL, "▁", *"abcdeht.Ub", "▁the"]
    library = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=1))
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.add_special_tokens(list(SPECIAL))
    return library


def word_level():
    ids = {word: number for number, word in enumerate(WORDS)}
    library = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.add_special_tokens(list(SPECIAL))
    return library


FRAMES = {
    "none": None,
    "offsets": processors.ByteLevel(),
    "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "bert": processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "one segment": processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:0 [SEP]:0", **FRAME),
    "end": processors.TemplateProcessing(single="$A [SEP]", pair="$A $B [SEP]", **FRAME),
}


# Separators, and the segment of the second text, of the tokenizers that frame texts.
OWN = {"roberta": (2, 0), "bert": (1, 1), "one segment": (1, 0)}


@pytest.mark.parametrize("architecture", ["bert", "without pairs", "modernbert", "roberta"])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", [wordpiece, byte_level, unigram, word_level])
def test_pairs_have_the_ids_and_segments_of_training(kind, frame, architecture, tmp_path):
    library = kind()
    spec = json.loads(library.to_str()) | {"post_processor": None}
    if (own := FRAMES[frame]) is not None:
        library.post_processor = own
        spec = json.loads(library.to_str())
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab/tokenizer.json").write_text(json.dumps(spec))
    judges, architecture = architecture == "bert", architecture.replace("without pairs", "bert")
    size = dataclasses.replace(CONFIG, architecture=architecture, vocab_size=library.get_vocab_size(), local_window=8)
    untrained = () if judges else ("next_sentence",)
    bert_format.save(tmp_path / "a", size, build_model(size).state_dict(), tmp_path / "vocab", untrained=untrained)
    made = saved_model.SavedModel(loop.build(size, None, HeadConfig("class", 2), seed=0), ["no", "yes"])
    for name, source in (("b", "a"), ("c", "vocab")):
        saved_model.save(tmp_path / name, made, size, tmp_path / source)
    usual = (1, 1) if judges else OWN.get(frame, (size.traits.separators, 1))
    tuned = OWN.get(frame, (1, int(frame != "end")))
    for name, (separators, segment) in (("a", usual), ("b", usual), ("c", tuned)):
        folder = tmp_path / name
        opened = AutoTokenizer.from_pretrained(folder)
        assert ("token_type_ids" in opened("a")) == (architecture == "bert")
        for texts in PAIRS:
            parts = [library.encode(text, add_special_tokens=False).ids for text in texts]
            before = [2, *parts[0], *[3] * (separators if len(parts) > 1 else 1)]
            right = [*before, *(parts[1] + [3] if len(parts) > 1 else [])]
            found = opened(*texts)
            assert found["input_ids"] == right
            first = len(before)
            types = [0] * first + [segment] * (len(right) - first)
            assert found.get("token_type_ids", types) == types
        vocabulary.check_ids(folder)


def test_the_check_sees_segments_that_are_missing(tmp_path):
    (tmp_path / "vocab").mkdir()
    byte_level().save(str(tmp_path / "vocab/tokenizer.json"))
    size = dataclasses.replace(CONFIG, vocab_size=byte_level().get_vocab_size())
    bert_format.save(tmp_path / "a", size, build_model(size).state_dict(), tmp_path / "vocab")
    path = tmp_path / "a/tokenizer_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"model_input_names": ["input_ids", "attention_mask"]}))
    with pytest.raises(RuntimeError, match="segments"):
        vocabulary.check_ids(tmp_path / "a")


@pytest.mark.parametrize("kind", [wordpiece, byte_level])
def test_added_words_are_written_as_they_were_read(kind, tmp_path):
    library = kind()
    library.add_tokens([AddedToken("<User>"), AddedToken("x y", normalized=False)])
    (tmp_path / "vocab").mkdir()
    library.save(str(tmp_path / "vocab/tokenizer.json"))
    size = dataclasses.replace(CONFIG, vocab_size=library.get_vocab_size())
    bert_format.save(tmp_path / "a", size, build_model(size).state_dict(), tmp_path / "vocab")
    vocabulary.check_ids(tmp_path / "a")
    opened, ours = AutoTokenizer.from_pretrained(tmp_path / "a"), WordPiece.load(tmp_path / "a")
    for text in ("a <User>b", "a<user> x yb", "X Y"):
        assert opened(text)["input_ids"][1:-1] == ours.encode([text])[0].tolist()


def test_a_folder_states_its_case_and_looks_behind_in_no_expression(tmp_path):
    for lowercase in (True, False):
        source = build(WORDS, lowercase=lowercase, new=True)
        assert vocabulary.tokenizer_config(CONFIG, source)["do_lower_case"] is lowercase
    spec = json.loads(source)
    split = {"type": "Split", "pattern": {"Regex": OLD_LONG_WORDS}, "behavior": "Isolated", "invert": False}
    spec["pre_tokenizer"]["pretokenizers"][1] = split
    old = json.dumps(spec)
    made = vocabulary.framed(old, True, PairFrame())
    assert "(?<" in old
    assert "(?<" not in made
    for text in ("the uber", "a" * 250, "a" * 99 + "e\u0301" * 3):
        assert Tokenizer.from_str(made).encode(text).ids == Tokenizer.from_str(old).encode(text).ids
