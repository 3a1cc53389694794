"""A folder of ours opens with transformers, and a folder of theirs here, with equal logits."""

import json
import stat
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, BertModel

from model.encoders import architectures
from model.encoders.architectures import build_model
from model.huggingface import bert_format, vocabulary
from model.huggingface.names import NAMES
from pipeline.errors import InputError
from pipeline.tokenization.wordpiece import WordPiece
from tests.model import tiny_bert, tiny_modernbert
from tests.model.sizes import write_model
from tests.model.tiny_bert import CONFIG, WORDS, forms, make_vocabulary, our_logits, our_state, their_logits
from tests.support.refusals import refused


@pytest.fixture
def state():
    return our_state()


@pytest.fixture
def folder(tmp_path, state, vocab_folder):
    bert_format.save(tmp_path / "saved", CONFIG, state, vocab_folder)
    return tmp_path / "saved"


def test_a_folder_opens_with_equal_logits(folder, state):
    masked, pairs = our_logits(CONFIG, state)
    opened, info = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found = their_logits(opened)
    torch.testing.assert_close(found.prediction_logits[0], masked, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.seq_relationship_logits, pairs, atol=1e-5, rtol=0)
    scores = their_logits(AutoModelForMaskedLM.from_pretrained(folder)).logits[0]
    torch.testing.assert_close(scores, masked, atol=1e-5, rtol=0)
    assert their_logits(AutoModel.from_pretrained(folder)).last_hidden_state.shape == (1, 30, 16)


def test_everybody_may_read_the_folder(folder):
    names = {"config.json", "model.safetensors", "vocab.txt", "README.md", "sentence_bert_config.json"}
    names |= {"tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_tokenizer_gives_the_ids_that_training_saw(tmp_path, state, lowercase):
    source = make_vocabulary(tmp_path / "cased", lowercase)
    bert_format.save(tmp_path / "out", CONFIG, state, source)
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    library = Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in ("The Über uber.", "中文 abc", "É [MASK] é", ""):
        assert opened(text)["input_ids"] == library.encode(text).ids
    pair = opened("ab c", "d e")
    assert pair["token_type_ids"] == library.encode("ab c", "d e").type_ids
    assert (opened.mask_token, opened.model_max_length) == ("[MASK]", 64)


def rare_tokenizer(normalizer, pre_tokenizer, longest=100, prefix="##"):
    """A WordPiece tokenizer that differs from BERT's, as a tokenizer.json."""
    ids = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=longest, continuing_subword_prefix=prefix)
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.add_special_tokens(WORDS[:5])
    return tokenizer.to_str()


BERT_WORDS, CASED = pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=False)


@pytest.mark.parametrize(
    "source",
    [
        rare_tokenizer(None, BERT_WORDS),
        rare_tokenizer(normalizers.Sequence([normalizers.NFKC(), CASED]), BERT_WORDS),
        rare_tokenizer(CASED, pre_tokenizers.WhitespaceSplit()),
        rare_tokenizer(CASED, BERT_WORDS, longest=2),
        rare_tokenizer(CASED, BERT_WORDS, prefix="@@"),
        rare_tokenizer(normalizers.BertNormalizer(clean_text=False), BERT_WORDS),
    ],
    ids=["no normalizer", "NFKC", "only spaces cut", "short words", "prefix", "control characters"],
)
def test_rare_wordpiece_tokenizers_give_the_ids_that_training_saw(tmp_path, state, source):
    (tmp_path / "tokenizer.json").write_text(source, encoding="utf-8")
    bert_format.save(tmp_path / "out", CONFIG, state, tmp_path)
    opened, ours = AutoTokenizer.from_pretrained(tmp_path / "out"), WordPiece.load(tmp_path)
    for text in ("Über uber the", "a.b", "ﬁ", "a\u0007b", "中文"):
        ids = opened(text, add_special_tokens=False)["input_ids"]
        assert ids == ours.encode([text])[0].tolist()
    assert "token_type_ids" in opened("a")
    assert (opened.mask_token, opened.model_max_length) == ("[MASK]", 64)


@pytest.mark.parametrize("size", [None, 3000])
@pytest.mark.parametrize("tiny", [tiny_bert, tiny_modernbert])
def test_what_was_saved_is_loaded(tmp_path, vocab_folder, tiny, size):
    state = tiny.our_state()
    bert_format.save(tmp_path / "saved", tiny.CONFIG, state, vocab_folder, shard_bytes=size)
    config, found, notes, _ = bert_format.load(tmp_path / "saved")
    assert (config, notes) == (replace(tiny.CONFIG, name="saved"), [])
    assert list(found) == list(architectures.parameter_shapes(tiny.CONFIG))
    assert all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("size", [1, 3000, 10**9])
def test_files_are_no_larger_than_asked_and_transformers_opens_them(tmp_path, state, vocab_folder, size):
    bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder, shard_bytes=size)
    files = list((tmp_path / "out").glob("*.safetensors"))
    assert (tmp_path / "out" / "model.safetensors.index.json").exists() == (len(files) > 1)
    largest = max(tensor.nbytes for tensor in state.values())
    for path in files:
        assert sum(t.nbytes for t in load_file(path).values()) <= max(size, largest)
    masked, _ = our_logits(CONFIG, state)
    found = their_logits(AutoModelForPreTraining.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(found.prediction_logits[0], masked, atol=1e-5, rtol=0)


def test_weights_that_are_parts_of_one_tensor_are_written_whole(tmp_path, state, vocab_folder):
    sizes = [tensor.numel() for tensor in state.values()]
    parts = torch.cat([tensor.flatten() for tensor in state.values()]).split(sizes)
    shared = {name: part.view_as(state[name]) for name, part in zip(state, parts, strict=True)}
    bert_format.save(tmp_path / "out", CONFIG, shared, vocab_folder)
    found = bert_format.load(tmp_path / "out")[1]
    assert all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_size_are_the_nearest(tmp_path, state, vocab_folder, dtype):
    bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder, dtype=dtype)
    again = bert_format.load(tmp_path / "out")[1]
    assert all(torch.equal(again[name], state[name].to(dtype).float()) for name in state)
    opened = AutoModelForPreTraining.from_pretrained(tmp_path / "out")
    assert opened.dtype == dtype


BAD = [(float(value), dtype, "train") for value in ("nan", "inf") for dtype in (torch.float32, torch.float16)]


@pytest.mark.parametrize(("value", "dtype", "key"), [*BAD, (1e6, torch.float16, "dtype")])
def test_a_weight_that_half_precision_cannot_hold_and_one_that_is_not_finite_are_told_apart(
    tmp_path, state, vocab_folder, value, dtype, key
):
    state["pooler.dense.bias"][:3] = value
    said = r"pooler\.dense\.bias: 3 " if key == "train" else r"pooler\.dense\.bias .* 1e\+06"
    with refused(InputError, said, key=key) as caught:
        bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder, dtype=dtype)
    assert ("dtype=" in str(caught.value)) == (key == "dtype")


def test_missing_heads_are_drawn_and_said(tmp_path, theirs):
    bare = BertModel(theirs[1].config, add_pooling_layer=False)
    bare.save_pretrained(tmp_path / "bare")
    _, state, notes, _ = bert_format.load(tmp_path / "bare")
    drawn = {note.split(":")[0] for note in notes}
    heads = ("pooler", "masked_head", "next_sentence")
    assert drawn == {name for name in state if name.startswith(heads)}
    again = bert_format.load(tmp_path / "bare")[1]
    assert all(torch.equal(state[name], again[name]) for name in state)
    words = bare.embeddings.word_embeddings.weight
    assert torch.equal(state["encoder.embeddings.word.weight"], words)


def test_a_head_of_another_task_is_left_out_and_said(theirs):
    folder, model = theirs
    extra = {"classifier.weight": torch.zeros(3, 16)}
    save_file({**forms(model)["with the decoder"], **extra}, folder / "model.safetensors")
    (note,) = bert_format.load(folder)[2]
    assert note.startswith("classifier.weight: ignored")


def changed(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


WRONG = {"hidden_act=relu": "hidden_act is relu, .*gelu", "type_vocab_size=4": "type_vocab_size is 4"}
WRONG |= {"type_vocab_size=3": "type_vocab_size is 3", "num_hidden_layers=3": "16 tensors"}
WRONG |= {"vocab_size=30522": r"word_embeddings.weight .*\(30522, 16\)", "model_type=electra": "electra"}


@pytest.mark.parametrize(("change", "message"), WRONG.items())
def test_a_config_that_cannot_be_computed_is_refused(theirs, change, message):
    key, _, value = change.partition("=")
    changed(theirs[0], **{key: int(value) if value.isdecimal() else value})
    with pytest.raises(InputError, match=message):
        bert_format.load(theirs[0])


@pytest.mark.parametrize("entries", [WORDS[:-1], [*WORDS, "more"]])
def test_a_vocabulary_of_another_size_is_refused(folder, state, tmp_path, entries):
    message = f"{len(entries)} entries, .* {len(WORDS)} word embeddings"
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    with pytest.raises(InputError, match=message):
        bert_format.load(folder)
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    with pytest.raises(InputError, match=message):
        bert_format.load(folder)
    with pytest.raises(InputError, match=message):
        bert_format.save(tmp_path / "again", CONFIG, state, folder)


def test_rows_that_only_pad_the_matrix_are_cut_off(tmp_path, state, vocab_folder):
    rows = -(-len(WORDS) // 64) * 64
    torch.manual_seed(0)
    wide = build_model(replace(CONFIG, vocab_size=rows)).state_dict()
    bert_format.save(tmp_path / "out", CONFIG, state, vocab_folder)
    tensors = {NAMES["bert"].their_name(name): tensor for name, tensor in wide.items()}
    save_file(tensors, tmp_path / "out" / "model.safetensors")
    changed(tmp_path / "out", vocab_size=rows)
    found, again, (note,), _ = bert_format.load(tmp_path / "out")
    assert found.vocab_size == len(WORDS)
    assert note.startswith(f"word embeddings: {rows - len(WORDS)} of {rows} rows")
    words = "encoder.embeddings.word.weight"
    assert torch.equal(again[words], wide[words][: len(WORDS)])


def test_a_vocabulary_in_two_minds_is_refused(folder):
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[6], lines[7] = lines[7], lines[6]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    with refused(InputError, r"'c', .*'b'", path=str(folder / "vocab.txt"), line=7):
        bert_format.load(folder)


def test_unused_ids_make_a_folder_that_we_and_transformers_read(tmp_path):
    ids = {word: number for number, word in enumerate(WORDS)} | {"last": len(WORDS) + 2}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = CASED, BERT_WORDS
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = replace(CONFIG, vocab_size=len(WORDS) + 3)
    write_model(tmp_path / "out", config, tmp_path)
    assert bert_format.load(tmp_path / "out")[0].vocab_size == config.vocab_size
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert opened("last", add_special_tokens=False)["input_ids"] == [ids["last"]]


def test_a_tokenizer_without_its_type_is_read_like_one_with(folder):
    """As those of the first published models are."""
    content = json.loads((folder / "tokenizer.json").read_text())
    before = vocabulary.read(folder)[1]
    del content["model"]["type"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert vocabulary.read(folder)[1] == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it would say that it is slow
        WordPiece.load(folder)
