"""RoBERTa's family: folders of theirs are read, and ours opened, with equal logits, losses and gradients."""

import json
import random
from contextlib import nullcontext

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from model.encoders.architectures import model_with
from model.encoders.batch import Batch, Packed
from model.finetuning import features, loop, saved_model
from model.finetuning.heads import HeadConfig
from model.huggingface import bert_format, vocabulary
from model.huggingface.names import NAMES
from model.training import initial_weights
from pipeline.config import VocabConfig
from pipeline.errors import InputError
from pipeline.tokenization import existing_vocabulary
from pipeline.tokenization.known_models import ACTIVATIONS
from pipeline.tokenization.wordpiece import WordPiece
from tests.support.refusals import refused

TYPES = "roberta.embeddings.token_type_embeddings.weight"
FAMILY = ("roberta", "xlm-roberta", "camembert")
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
ENTRIES = [*SPECIALS, *(f"▁{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"), "▁", *"abcdef", "<mask>"]


def their_model(kind, **changes):
    """A model of transformers, with random weights, those of biases and token types too."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    rows = {"vocab_size": len(ENTRIES), "max_position_embeddings": 34, "type_vocab_size": 1}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = transformers.AutoConfig.for_model(kind, **sizes | rows | ids | changes)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model = getattr(transformers, NAMES[kind].pretrained)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
        parameter.data = (parameter.data * 1024).round() / 1024  # a position and a type add up without rounding
    return model


def write_tokenizer(folder, pad=1):
    """XLM-R's: Unigram, Metaspace, two separators between the texts of a pair; the padding in another place."""
    entries = [*ENTRIES]
    entries[1], entries[pad] = entries[pad], entries[1]
    pieces = [(entry, -float(n)) for n, entry in enumerate(entries)]
    made = Tokenizer(models.Unigram(pieces, unk_id=entries.index("<unk>")))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens([*SPECIALS, AddedToken("<mask>", lstrip=True)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, entries.index(name)) for name in ("<s>", "</s>")],
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


def drawn(seed):
    """Sizes and settings that published models differ in."""
    rng = random.Random(seed)
    heads, layers, rows = rng.choice((1, 2, 4)), rng.choice((1, 3)), rng.randrange(8, 40)
    inner, rate = rng.randrange(1, 50), rng.choice((1e-12, 1e-6, 1e-5, 1e-2))
    sizes = {"hidden_size": heads * rng.choice((4, 8)), "num_attention_heads": heads, "num_hidden_layers": layers}
    sizes |= {"hidden_act": rng.choice(tuple(ACTIVATIONS)), "pad_token_id": rng.choice((0, 1, 3))}
    return sizes | {"max_position_embeddings": rows, "intermediate_size": inner, "layer_norm_eps": rate}


def batch_of(length):
    each, none = torch.arange(length), torch.zeros(length, dtype=torch.long)
    ids = each % 30 + 4
    return ids, Batch(ids, none, each, torch.tensor([0, length]).int(), length, each, ids, none[:1])


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("changes", [{}, *map(drawn, range(4))])
def test_logits_losses_and_gradients_are_those_of_transformers(tmp_path, kind, changes):
    theirs = their_model(kind, **changes)
    theirs.save_pretrained(tmp_path)
    config, state, notes, _ = bert_format.load(tmp_path)
    rows = theirs.config.max_position_embeddings - theirs.config.pad_token_id - 1
    assert (config.architecture, config.positions, notes) == (kind, rows, [])
    ours, theirs = model_with(config, state).double().requires_grad_(True), theirs.double()
    ids, batch = batch_of(config.positions)
    expected = theirs(input_ids=ids[None], labels=ids[None])
    logits, pairs = ours(batch)
    assert pairs is None
    torch.testing.assert_close(logits, expected.logits[0], atol=1e-10, rtol=0)
    loss = torch.nn.functional.cross_entropy(logits, ids)
    torch.testing.assert_close(loss, expected.loss)
    loss.backward()
    expected.loss.backward()
    grads = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        their_name = NAMES[kind].their_name(name)
        if their_name in grads:
            torch.testing.assert_close(parameter.grad, grads[their_name].grad[-len(parameter) :], atol=1e-9, rtol=1e-8)


@pytest.mark.parametrize(("kind", "pad"), [*((kind, 1) for kind in FAMILY), ("roberta", 0), ("xlm-roberta", 3)])
def test_a_folder_of_ours_opens_with_its_class_logits_and_ids(tmp_path, kind, pad):
    theirs = their_model(kind, pad_token_id=pad, hidden_act="gelu_new")
    theirs.save_pretrained(write_tokenizer(tmp_path / "theirs", pad))
    (tmp_path / "theirs/spm.model").write_bytes(b"\n\x0e")
    config, state, _, _ = bert_format.load(tmp_path / "theirs")
    bert_format.save(tmp_path / "ours", config, state, tmp_path / "theirs")
    assert (tmp_path / "ours/spm.model").read_bytes() == b"\n\x0e"
    opened, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(opened) is type(theirs)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, _ = batch_of(30)
    padded = torch.cat((ids[:20], torch.full((10,), pad)))[None]
    given = {"input_ids": padded, "attention_mask": (padded != pad).long()}
    torch.testing.assert_close(opened(**given).logits[:, :20], theirs(**given).logits[:, :20], atol=1e-5, rtol=0)
    assert not load_file(tmp_path / "ours" / "model.safetensors")[
        "roberta.embeddings.token_type_embeddings.weight"
    ].any()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    before = Tokenizer.from_file(str(tmp_path / "theirs" / "tokenizer.json"))
    for texts in (("a b cab",), ("a <mask> b",)):
        assert tokenizer(*texts)["input_ids"] == before.encode(*texts).ids
    assert (opened.config.hidden_act, tokenizer.model_max_length) == ("gelu_new", config.positions)
    vocabulary.check_ids(tmp_path / "ours")


FORMS = ["bare", "pickled", "only decoder.bias", "two biases", "only decoder.weight", "buffers"]


@pytest.mark.parametrize("form", FORMS)
def test_checkpoints_of_older_writers_are_read(tmp_path, form):
    theirs = their_model("roberta")
    theirs.save_pretrained(tmp_path)
    _, expected, _, _ = bert_format.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    tensors = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    if form == "bare":
        tensors = {name.removeprefix("roberta."): tensor for name, tensor in tensors.items()}
    if form == "only decoder.bias":
        del tensors["lm_head.bias"]
    if form == "two biases":  # transformers keeps both, and reads the decoder's
        tensors["lm_head.bias"] = tensors["lm_head.bias"] + 1
    if form == "only decoder.weight":  # as safetensors' save_model leaves it
        del tensors["roberta.embeddings.word_embeddings.weight"]
    if form == "buffers":
        tensors["roberta.embeddings.position_ids"] = torch.arange(34)[None]
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    _, found, notes, _ = bert_format.load(tmp_path)
    assert notes == []
    assert all(torch.equal(found[name], expected[name]) for name in expected)


OTHERS = [{"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}]


@pytest.mark.parametrize("changes", [*OTHERS, {"tie_word_embeddings": False}])
def test_what_is_computed_otherwise_is_refused(tmp_path, changes):
    their_model("roberta").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with refused(InputError, next(iter(changes))):
        bert_format.load(tmp_path)


def test_positions_from_another_id_than_the_padding_has_are_refused(tmp_path):
    their_model("roberta", pad_token_id=0).save_pretrained(write_tokenizer(tmp_path))
    for read in (bert_format.load, lambda folder: existing_vocabulary.load(VocabConfig(existing=str(folder)))):
        with refused(InputError, "pad_token_id is 0, must be 1", path=str(tmp_path / "config.json")):
            read(tmp_path)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("kind", "dtype", "most"),
    [("roberta", "float32", "9MB"), ("camembert", "bfloat16", "3KB"), ("xlm-roberta", "float16", "")],
)
def test_a_decoder_of_its_own_is_refused_from_the_first_command_on(tmp_path, kind, dtype, most, own):
    theirs = their_model(kind, tie_word_embeddings=False).to(getattr(torch, dtype))
    if not own:
        theirs.lm_head.decoder.weight.data = theirs.roberta.embeddings.word_embeddings.weight.data.clone()
    theirs.save_pretrained(write_tokenizer(tmp_path), max_shard_size=most or "9MB")
    if not most:  # as older writers
        (tmp_path / "model.safetensors").unlink()
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    for read in (bert_format.load, lambda folder: existing_vocabulary.load(VocabConfig(existing=str(folder)))):
        with refused(InputError, "decoder", path=str(tmp_path)) if own else nullcontext():
            read(tmp_path)


@pytest.mark.parametrize("rows", [2, 3])
def test_token_types_that_no_text_has_are_said_to_be_ignored(tmp_path, rows):
    theirs = their_model("roberta", type_vocab_size=rows)
    theirs.save_pretrained(tmp_path)
    config, state, notes, _ = bert_format.load(tmp_path)
    ids, batch = batch_of(12)
    torch.testing.assert_close(model_with(config, state)(batch)[0], theirs(ids[None]).logits[0], atol=1e-5, rtol=0)
    assert [note.partition(":")[0] for note in notes] == [f"{TYPES} (rows 1 to {rows - 1})"]


@pytest.mark.parametrize("rows", [(0, 16), (1, 8), (16,)])
def test_a_table_without_a_row_of_the_width_is_refused(tmp_path, rows):
    theirs = their_model("roberta")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict() | {TYPES: torch.empty(rows)}, tmp_path / "pytorch_model.bin")
    with refused(InputError, "token_type_embeddings", path=str(tmp_path / "pytorch_model.bin")):
        bert_format.load(tmp_path)


def test_initial_weights_of_a_run_are_those_of_the_folder(tmp_path):
    their_model("camembert").save_pretrained(write_tokenizer(tmp_path))
    source = initial_weights.read(tmp_path)
    assert (source.config.architecture, source.config.positions, source.notes) == ("camembert", 32, [])


@pytest.mark.parametrize("kind", ["class", "choice", "tag", "answer"])
@pytest.mark.parametrize("family", FAMILY)
def test_heads_open_in_transformers_and_here_with_equal_outputs(tmp_path, kind, family):
    theirs = their_model(family)
    theirs.save_pretrained(tmp_path / "start")
    config, state, *_ = bert_format.load(tmp_path / "start")
    ours = loop.build(config, state, HeadConfig(kind, 2), seed=1).eval()
    vocab, folder = write_tokenizer(tmp_path / "vocab"), tmp_path / "tuned"
    (vocab / "merges.txt").write_text("a b\n")
    saved_model.save(folder, saved_model.SavedModel(ours, []), config, vocab)
    assert (folder / "merges.txt").read_text() == "a b\n"
    opened = getattr(transformers, NAMES[family].tuned[kind]).from_pretrained(folder).eval()
    ids, batch = batch_of(12)
    shape = (1, 2, 6) if kind == "choice" else (1, 12)
    ends = torch.tensor([0, 6, 12] if kind == "choice" else [0, 12]).int()
    places = torch.arange(12) % 6 if kind == "choice" else batch.position_ids
    packed = Packed(ids, torch.zeros_like(ids), places, ends, 12)
    with torch.no_grad():
        found = opened(input_ids=ids.view(shape))
        wanted = torch.stack([found.start_logits, found.end_logits], -1)[0] if kind == "answer" else found.logits
        wanted = wanted.reshape(-1, 2)
        again = saved_model.load(folder)[1].model
        state |= saved_model.head_of(folder, config, bert_format.load(folder)[3], kind, ["LABEL_0", "LABEL_1"])
        tuned = loop.build(config, state, HeadConfig(kind, 2), seed=2).eval()  # continues with the same head
        for model in (ours, again, tuned):
            torch.testing.assert_close(model(packed, None).reshape(-1, 2), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [*FAMILY, "bert"])  # a BERT with XLM-R's tokenizer, as MiniLM
def test_pairs_are_those_of_transformers(tmp_path, kind):
    their_model(kind, type_vocab_size=1 + (kind == "bert")).save_pretrained(tmp_path / "start")
    config, state, *_ = bert_format.load(tmp_path / "start")
    vocab = write_tokenizer(tmp_path / "vocab")
    bert_format.save(tmp_path / "ours", config, state, vocab, untrained=["next_sentence"])
    vocabulary.check_ids(tmp_path / "ours")
    wordpiece = WordPiece.load(tmp_path / "ours")
    made = features.tokenize(wordpiece, ["ab", "abcdef"], ["cd", "fedcba"], [0, 0], features.TruncationConfig(12))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "ours")
    pairs = theirs(["ab", "abcdef"], ["cd", "fedcba"], truncation=True, max_length=12)
    assert [ids.tolist() for ids in made.ids] == pairs["input_ids"]
    assert made.second.tolist() == [len(ids) for ids in made.ids]  # one segment
    assert not any(map(any, pairs.get("token_type_ids", [])))
