"""What the other files of a model's folder say of its tokenizer; transformers is the judge."""

import dataclasses
import json
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

from model.config import DataConfig, ObjectiveConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format, vocabulary
from model.loader.loader import Loader
from pipeline import convert, prepare, vocab
from pipeline.config import ConvertConfig, CorpusConfig, VocabConfig
from pipeline.errors import ConfigError, InputError
from pipeline.shards import open_folder
from pipeline.stages import stage
from pipeline.storage.checksums import sha256
from pipeline.tokenization import existing_vocabulary
from pipeline.tokenization.wordpiece import UNUSED_IDS, PairFrame, WordPiece, build
from tests.model.conftest import losses
from tests.model.sizes import small
from tests.model.tiny_bert import CONFIG, WORDS
from tests.support import forked, preparing
from tests.support.refusals import refused

ADDED = ["<e1>", "</e1>", "[User]", "$price", "näher", "Foo Bar", "<tel>", "##x#"]
TEXTS = ["a <e1>b</e1> c", "[USER] a", "a $price.", "The näher foo bar", "<tel><tel>", "a ##x# b"]


def folder_of(folder, files, library=None):
    """Return a folder with a vocab.txt, or a tokenizer.json, and other files."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    if library is None:
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    else:
        (folder / "tokenizer.json").write_text(library, encoding="utf-8")
    stated = {"do_lower_case": True, **files.get("tokenizer_config.json", {})}
    for name, content in (files | {"tokenizer_config.json": stated}).items():
        (folder / name).write_text(json.dumps(content))
    return folder


def decoder(special=False, **fields):
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": not special}
    return {
        str(number): {"content": token, "special": special, **flags, **fields}
        for number, token in enumerate(ADDED, len(WORDS))
    }


NUMBERED = {token: n for n, token in enumerate(ADDED, len(WORDS))}
REPEATED = {"40": {"content": WORDS[40], "special": False, "normalized": False}, **decoder()}
DECODERS = [decoder(), decoder(special=True), decoder(single_word=True, rstrip=True), REPEATED]
FILES = [{"added_tokens.json": NUMBERED}, {"added_tokens.json": dict(reversed(NUMBERED.items()))}]
FILES += [{"tokenizer_config.json": {"added_tokens_decoder": each}} for each in DECODERS]
FILES += [
    {"added_tokens.json": NUMBERED, "tokenizer_config.json": {f"{kind}_special_tokens": ADDED[:3]}}
    for kind in ("additional", "extra")
]


@pytest.mark.parametrize("library", [False, True], ids=["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize("files", FILES)
def test_trained_added_tokens_keep_their_rows_and_are_read_as_transformers_reads_them(files, library, tmp_path):
    folder = folder_of(tmp_path / "a", files, build(WORDS, lowercase=True) if library else None)
    theirs, ours = AutoTokenizer.from_pretrained(folder), WordPiece.load(folder)
    assert (ours.size, ours.vocab[len(WORDS) :]) == (len(WORDS) + len(ADDED), ADDED)
    for text in TEXTS:
        found = ours.encode([text])[0].tolist()
        assert found == theirs(text, add_special_tokens=False)["input_ids"], text
    # With padding after them, as published matrices have it.
    rows = -(-(ours.size + 1) // 8) * 8
    trained = CONFIG.__class__(**{**CONFIG.__dict__, "vocab_size": rows})
    state = build_model(trained).state_dict()
    size = bert_format.without_padding(folder, {}, trained, state, [])
    assert (size.vocab_size, len(state["encoder.embeddings.word.weight"])) == (ours.size, ours.size)
    bert_format.save(tmp_path / "b", size, state, folder)
    again = AutoTokenizer.from_pretrained(tmp_path / "b")
    for text in TEXTS:
        assert again(text)["input_ids"] == theirs(text)["input_ids"], text


def existing(path, out="x"):
    return VocabConfig(corpus=CorpusConfig(name="none", reader="none"), source="s", out=out, existing=str(path))


def test_an_existing_vocabulary_keeps_added_tokens(tmp_path):
    folder = folder_of(tmp_path / "a", FILES[0])
    assert WordPiece(existing_vocabulary.load(existing(folder))).vocab == [*WORDS, *ADDED]


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_an_existing_tokenizer_json_is_taken_as_it_is(name, tmp_path):
    folder = folder_of(tmp_path / "a", {}, source := build(WORDS, lowercase=True))
    assert existing_vocabulary.load(existing(folder / name)) == source


def test_an_existing_vocabulary_without_special_tokens_is_refused(tmp_path):
    (path := tmp_path / "mine.txt").write_text("[PAD]\n[UNK]\na\n")
    with refused(InputError, path=str(path)):
        existing_vocabulary.load(existing(path))


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"<e1>": "x"}', '{"<e1>": 7}', f'{{"<e1>": {len(WORDS) + 2}}}', f'{{"a": {len(WORDS)}}}']
)
def test_added_tokens_that_cannot_be_are_refused(content, tmp_path):
    folder = folder_of(tmp_path / "a", {})
    (folder / "added_tokens.json").write_text(content)
    with pytest.raises(InputError) as caught:
        WordPiece.load(folder)
    assert str(folder) in str(caught.value.path)


CODE = {"AutoTokenizer": ["code.Mine", None]}
CLASSES = "BertJapanese Bertweet Phobert RoFormer Canine RoCBert"
OTHER = [{"tokenizer_class": f"{name}Tokenizer"} for name in CLASSES.split()]
OTHER += [{"auto_map": CODE}, {"auto_map": ["code.Mine", None]}, {"do_basic_tokenize": False}, {"sep_token": "the"}]
OTHER += [{"mask_token": {"content": "the", "lstrip": True}}, {"word_tokenizer_type": "mecab"}]
OTHER += [{"never_split": ["ab.c"]}, {"subword_tokenizer_type": "character"}]
OTHER = [("tokenizer_config.json", content) for content in OTHER]
OTHER += [("config.json", {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"})]
OTHER += [("config.json", {"model_type": "bert", "auto_map": CODE})]


@pytest.mark.parametrize("library", [False, True], ids=["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize(("name", "content"), OTHER)
def test_classes_that_cut_text_in_another_way_are_refused(name, content, library, tmp_path):
    folder = folder_of(tmp_path / "a", {name: content}, build(WORDS, lowercase=True) if library else None)
    with pytest.raises(InputError) as caught:
        WordPiece.load(folder)
    assert str(caught.value.path).startswith(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "read"), [("MineTokenizer", True), ("GPT2TokenizerFast", True), ("ByT5Tokenizer", False)]
)
def test_other_classes_read_no_vocab_txt_but_a_tokenizer_json_that_is_no_wordpiece(name, read, tmp_path):
    library = Tokenizer(models.BPE({word: number for number, word in enumerate(WORDS)}, [], unk_token="[UNK]"))
    for kind, source in (("json", str(library.to_str())), ("txt", None)):
        folder = folder_of(tmp_path / kind, {"tokenizer_config.json": {"tokenizer_class": name}}, source)
        with nullcontext() if read and source else refused(InputError, path=str(folder / "tokenizer_config.json")):
            assert WordPiece.load(folder).vocab == WORDS


@pytest.mark.parametrize("library", [False, True], ids=["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "ElectraTokenizer", "DistilBertTokenizerFast"])
def test_classes_that_cut_as_bert_does_are_read(name, library, tmp_path):
    stated = {"tokenizer_class": name, "do_basic_tokenize": True, "never_split": None}
    files = {"tokenizer_config.json": stated | {"auto_map": {"AutoModel": "code.Mine"}}}
    folder = folder_of(tmp_path / "a", files, build(WORDS, lowercase=True) if library else None)
    theirs, ours = AutoTokenizer.from_pretrained(folder), WordPiece.load(folder)
    for text in ("The Über abc.", "中文 É"):
        assert ours.encode([text])[0].tolist() == theirs(text)["input_ids"][1:-1]


NAMES = {"lowercase": "do_lower_case", "strip_accents": "strip_accents", "split_chinese": "tokenize_chinese_chars"}


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("option", NAMES)
def test_what_the_folder_says_of_a_berts_text_counts(option, lowercase, tmp_path):
    options = {"lowercase": lowercase, "strip_accents": False, "split_chinese": True}
    stated = {NAMES[name]: value for name, value in options.items()} | {NAMES[option]: not options[option]}
    folder = folder_of(tmp_path / "a", {"tokenizer_config.json": stated}, build(WORDS, **options))
    theirs, ours = AutoTokenizer.from_pretrained(folder), WordPiece.load(folder)
    for text in ("The Über uber \u00fcber", "中文 the"):
        assert ours.encode([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stated", [{}, {"add_prefix_space": False}, {"add_prefix_space": True}])
def test_what_the_folder_says_of_the_space_before_robertas_text_counts(stated, own, tmp_path):
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=own)
    tokenizer.train_from_iterator(["the the"] * 3, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    files = {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", **stated}}
    folder = folder_of(tmp_path / "a", files, tokenizer.to_str())
    expected = AutoTokenizer.from_pretrained(folder)("the the", add_special_tokens=False)["input_ids"]
    assert WordPiece.load(folder).encode(["the the"])[0].tolist() == expected


def test_trained_special_tokens_of_a_tokenizer_json_are_found_in_text(tmp_path):
    theirs = AutoTokenizer.from_pretrained(folder_of(tmp_path / "a", {}, build(WORDS, lowercase=True)))
    theirs.add_special_tokens({"additional_special_tokens": ADDED[:2]})
    theirs.add_tokens(ADDED[2:], special_tokens=True)
    theirs.save_pretrained(tmp_path / "b")
    ours = WordPiece.load(tmp_path / "b")
    for text in TEXTS:
        assert ours.encode([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"], text
    assert set(ours.encode(["[MASK] [SEP]"])[0].tolist()).isdisjoint(ours.special_ids[2:])


def test_a_tokenizer_that_fails_at_an_unknown_letter_is_refused(tmp_path):
    library = Tokenizer(models.Unigram([(word, -1.0) for word in WORDS]))
    with pytest.raises(InputError):
        WordPiece.load(folder_of(tmp_path / "a", {}, str(library.to_str())))


@pytest.mark.parametrize("above", [0, 1])
def test_ids_far_beyond_the_number_of_entries_are_refused(above, tmp_path):
    last = 2 * (len(WORDS) + 1) + UNUSED_IDS + above
    library = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)} | {"far": last}, unk_token="[UNK]"))
    folder = folder_of(tmp_path / "a", {}, str(library.to_str()))
    with refused(InputError, f"{last:,}") if above else nullcontext():
        assert WordPiece.load(folder).vocab[last] == "far"


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_a_pointer_to_a_vocabulary_is_named(name, tmp_path):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with refused(InputError, "is a Git LFS pointer, not the file itself", path=str(tmp_path / name)):
        WordPiece.load(tmp_path)


# Any tokenizer.json works from text to model: byte-level BPE, also of more than 65,536 entries.


BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
GEMMA = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
ROLES = ("pad", "unk", "cls", "sep", "mask")
TEXT = [
    f"The mill number {n} stood by the river. Its wheel turned <mask> {n % 7} times a day, they "
    f"said. Nobody [MASK] knew why; naïve visitors asked 中文 {n}. "
    f"他走了。真的嗎？是的 {n}！"
    for n in range(60)
]


def write_tokenizer(folder, special, most):
    """Byte-level BPE of bytes, some words, and unused entries, `most` together."""
    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = {}
    for word in ("Ġthe", "Ġriver", "Ġwheel", "The"):
        merges |= {word[: end + 1]: (word[:end], word[end]) for end in range(1, len(word))}
    unused = (f"<unused{n}>" for n in range(most - len(letters) - len(merges) - len(special)))
    ids = {entry: number for number, entry in enumerate([*letters, *unused, *merges])}
    tokenizer = Tokenizer(models.BPE(ids, list(merges.values())))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    tokenizer.enable_padding(length=99)
    tokenizer.enable_truncation(7)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(
    scope="module", params=[("bert", BERT, 400), pytest.param(("gemma", GEMMA, 65_700), marks=pytest.mark.slow)]
)
def made(request, tmp_path_factory):
    """A folder with an existing vocabulary and the shards made with it."""
    name, special, most = request.param
    folder = tmp_path_factory.mktemp(name)
    written = write_tokenizer(folder / "existing", special, most)
    stage.run("vocab", existing(written, str(folder / "vocab")), vocab.make)
    (folder / "a.txt").write_text("\n\n".join(TEXT))
    paragraphs = {"options": {"document": "paragraph"}, "pairs": "none", "cross_documents": False}
    sizes = {"out": str(folder / "prepare"), "validation_share": 0.2, "sequence_length": 256}
    shards = preparing.settings("text", folder / "a.txt", folder / "vocab", **paragraphs, **sizes)
    stage.run("prepare", shards, prepare.make)
    return folder


def test_documents_have_the_ids_of_the_library(made):
    library = Tokenizer.from_file(str(made / "existing/tokenizer.json"))
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True
    right = sorted(tuple(one.ids) for one in library.encode_batch(TEXT, add_special_tokens=False))
    stored = [s for split in ("train", "validation") for s in open_folder(made / "prepare", split)]
    rows = [np.split(shard.values, shard.offsets[1:-1]) for shard in stored]
    assert sorted(tuple(row.tolist()) for part in rows for row in part) == right
    wide = library.get_vocab_size() > 65_535
    assert {shard.values.dtype for shard in stored} == {np.dtype(np.uint32 if wide else np.uint16)}
    assert not (made / "vocab/vocab.txt").exists()


def test_special_tokens_are_those_of_the_file_and_are_never_masked(made):
    wordpiece = WordPiece.load(made / "vocab")
    assert [wordpiece.vocab[n] for n in wordpiece.special_ids] in (list(BERT), list(GEMMA))
    data = DataConfig(dir=str(made / "prepare"), vocab=str(made / "vocab"))
    objective = ObjectiveConfig(name="x", next_sentence=False, mask_token_share=1.0, random_token_share=0.0)
    batch = Loader(data, objective, wordpiece, 0, "train").batch(0, 20).batches[0]
    first = batch.cu_seqlens[:-1].long()
    assert (batch.input_ids[first] == wordpiece.cls).all()
    assert (batch.input_ids[batch.cu_seqlens[1:].long() - 1] == wordpiece.sep).all()
    assert (batch.input_ids[batch.masked_positions] == wordpiece.mask).all()
    assert not np.isin(batch.masked_labels.numpy(), wordpiece.special_ids).any()
    with refused(ConfigError, key="objective.whole_word"):
        Loader(data, dataclasses.replace(objective, whole_word=True), wordpiece, 0, "train")


def test_a_model_with_it_is_opened_by_transformers(made):
    wordpiece = WordPiece.load(made / "vocab")
    sizes = {"feed_forward": 24, "positions": 64, "local_window": 8, "initializer_range": 0.2}
    config = small(wordpiece.size, name="x", architecture="modernbert", **sizes)
    torch.manual_seed(0)
    state = build_model(config).state_dict()
    first = made / "first"
    bert_format.save(first, config, state, made / "vocab")
    out = ConvertConfig(workdir=str(made), out=str(made / "convert"), train=str(first), vocab=None)
    assert stage.run("convert", out, convert.make).figures["largest_logit_difference"] < 1e-6
    tokenizer = AutoTokenizer.from_pretrained(out.out)
    assert [getattr(tokenizer, f"{role}_token_id") for role in ROLES] == wordpiece.special_ids
    text = "The wheel turned by the river."
    ids = wordpiece.encode([text])[0].tolist()
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
    framed = [wordpiece.cls, *ids, wordpiece.sep]
    assert tokenizer(text)["input_ids"] == framed
    assert tokenizer(text, text)["input_ids"] == [*framed, *ids, wordpiece.sep]
    theirs = AutoModelForMaskedLM.from_pretrained(out.out)
    assert theirs.config.cls_token_id == wordpiece.cls
    loaded = bert_format.load(out.out)
    assert loaded[0].vocab_size == wordpiece.size
    assert all(torch.equal(loaded[1][name], tensor) for name, tensor in state.items())
    assert sha256(first / "tokenizer.json") == sha256(made / "convert/tokenizer.json")


ROBERTA = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
END = processors.TemplateProcessing(single="$A </s>", pair="$A $B", special_tokens=[("</s>", 2)])
FRAMES = {"none": None, "offsets": processors.ByteLevel(trim_offsets=True), "roberta": ROBERTA, "end only": END}


@pytest.mark.parametrize("own", FRAMES.values(), ids=FRAMES)
def test_transformers_frames_texts_as_training_does(own):
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]
    library = Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, []))
    library.add_special_tokens(names[:-1])
    if own is not None:
        library.post_processor = own
    source = vocabulary.framed(library.to_str(), False, PairFrame())
    made = Tokenizer.from_str(source)
    assert (made.encode("a").ids, made.encode("a", "a").ids) == ([0, 5, 2], [0, 5, 2, 5, 2])
    assert vocabulary.framed(source, False, PairFrame()) == source


@pytest.mark.slow
def test_a_modernbert_of_transformers_is_trained_further_on_its_shards(made):
    wordpiece = WordPiece.load(made / "vocab")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    places = {"local_attention": 8, "max_position_embeddings": 256, "pad_token_id": wordpiece.pad}
    special = {"bos_token_id": wordpiece.cls, "eos_token_id": wordpiece.sep, "cls_token_id": wordpiece.cls}
    special["sep_token_id"] = wordpiece.sep
    config = ModernBertConfig(vocab_size=wordpiece.size, **sizes, **places, **special)
    torch.manual_seed(0)
    ModernBertForMaskedLM(config).save_pretrained(made / "published")
    AutoTokenizer.from_pretrained(made / "vocab").save_pretrained(made / "published")
    words = [f"workdir={made}", "model=auto", f"start={made}/published", "objective=modern", "threads=1"]
    learn = "optimizer=stable_adamw clip=null optimizer.learning_rate=1e-2 batch_size=8 micro_batch=8 steps=20"
    every = ["log_every=1", "evaluate_every=20", "save_every=20", "tracking=none"]
    run = forked.module("model.train", *words, *learn.split(" "), *every, ranks=1)
    assert run.returncode == 0, run.stderr
    seen = losses(made / "train")
    assert seen[0] == pytest.approx(math.log(wordpiece.size), abs=0.5)
    assert seen[-1] < seen[0] - 0.3
    out = ConvertConfig(
        workdir=str(made), out=str(made / "trained"), train=str(made / "train"), vocab=str(made / "vocab")
    )
    assert stage.run("convert", out, convert.make).figures["largest_logit_difference"] < 1e-5
    assert AutoModelForMaskedLM.from_pretrained(out.out).config.vocab_size == wordpiece.size
