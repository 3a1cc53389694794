import json
import stat
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    RobertaConfig,
    RobertaModel,
    pipeline,
)
from transformers import BertModel as TheirEncoder

from model import bert, huggingface, vocabulary
from model.config import ModelConfig
from pipeline.errors import InputError
from pipeline.stage import Manifest
from pipeline.text.wordpiece import WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
         "the", "Über", "uber", ".", "中", "文"]  # fmt: skip
CONFIG = ModelConfig(name="small", layers=2, hidden=16, heads=2, feed_forward=32, positions=64,
                     vocab_size=len(WORDS), initializer_range=0.1)  # fmt: skip


def make_vocabulary(folder, lowercase: bool = True):
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lowercase)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def vocab_folder(tmp_path):
    return make_vocabulary(tmp_path / "vocab")


@pytest.fixture
def state():
    torch.manual_seed(0)
    return bert.BertForPreTraining(CONFIG).state_dict()


@pytest.fixture
def folder(tmp_path, state, vocab_folder):
    huggingface.save(tmp_path / "saved", CONFIG, state, vocab_folder)
    return tmp_path / "saved"


@pytest.fixture
def theirs(tmp_path):
    """A folder as transformers itself writes it, and its model."""
    torch.manual_seed(1)
    sizes = {name: getattr(CONFIG, ours) for ours, name in huggingface.SIZES.items()}
    model = BertForPreTraining(BertConfig(**sizes)).eval()
    model.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs", model


def our_logits(config, state) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one sequence of tokens 5 .. 34, at every position but the first."""
    from model.batch import Batch

    model = bert.BertForPreTraining(config).eval()
    model.load_state_dict(state)
    each, none = torch.arange(30), torch.zeros(30, dtype=torch.long)
    batch = Batch(each + 5, none, each, torch.tensor([0, 30]).int(), 30, each[1:], each[1:], none)
    with torch.no_grad():
        return model(batch)


def their_logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.arange(30)[None] + 5)


def test_a_folder_opens_with_equal_logits(folder, state):
    masked, pairs = our_logits(CONFIG, state)
    found = their_logits(AutoModelForPreTraining.from_pretrained(folder))
    torch.testing.assert_close(found.prediction_logits[0, 1:], masked, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.seq_relationship_logits, pairs, atol=1e-5, rtol=0)
    scores = their_logits(AutoModelForMaskedLM.from_pretrained(folder)).logits[0, 1:]
    torch.testing.assert_close(scores, masked, atol=1e-5, rtol=0)
    assert their_logits(AutoModel.from_pretrained(folder)).last_hidden_state.shape == (1, 30, 16)


def test_what_transformers_would_complain_of_is_nothing(folder):
    _, info = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_the_file_has_the_names_that_transformers_writes(folder, theirs):
    ours, others = (load_file(place / "model.safetensors") for place in (folder, theirs[0]))
    assert {name: t.shape for name, t in ours.items()} == {n: t.shape for n, t in others.items()}


def test_everybody_may_read_the_folder(folder):
    names = {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt",
             "tokenizer_config.json", "README.md"}  # fmt: skip
    assert {path.name for path in folder.iterdir()} == names
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_tokenizer_gives_the_ids_that_training_saw(tmp_path, state, lowercase):
    source = make_vocabulary(tmp_path / "cased", lowercase)
    huggingface.save(tmp_path / "out", CONFIG, state, source)
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    library = Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in ("The Über uber.", "中文 abc", "É [MASK] é", ""):
        assert opened(text)["input_ids"] == library.encode(text).ids
    pair = opened("ab c", "d e")
    assert pair["token_type_ids"] == library.encode("ab c", "d e").type_ids
    assert opened.mask_token == "[MASK]"
    assert opened.model_max_length == 64


def test_fill_mask_answers(folder):
    answers = pipeline("fill-mask", str(folder))("the [MASK] .")
    assert len(answers) == 5
    assert all(answer["token_str"] in " ".join(WORDS) for answer in answers)


def test_what_was_saved_is_loaded(folder, state):
    config, found, notes = huggingface.load(folder)
    assert notes == []
    assert config.name == "saved"
    assert all(getattr(config, key) == getattr(CONFIG, key) for key in huggingface.SIZES)
    assert list(found) == list(bert.parameter_shapes(CONFIG))
    assert all(torch.equal(found[name], state[name]) for name in state)


def forms(model) -> dict[str, dict[str, torch.Tensor]]:
    """State dicts as they are found in the wild."""
    full = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in full.items()
    }
    buffers = {"bert.embeddings.position_ids": torch.arange(64)[None]}
    untold = {name: t for name, t in full.items() if name != "cls.predictions.bias"}
    return {"with the decoder": full, "gamma and beta": old | buffers, "only decoder.bias": untold}


@pytest.mark.parametrize("form", ["with the decoder", "gamma and beta", "only decoder.bias"])
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_published_forms_load_with_equal_logits(theirs, form, suffix):
    folder, model = theirs
    (folder / "model.safetensors").unlink()
    tensors = forms(model)[form]
    if suffix == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    config, state, notes = huggingface.load(folder)
    assert notes == []
    masked, pairs = our_logits(config, state)
    found = their_logits(model)
    torch.testing.assert_close(masked, found.prediction_logits[0, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(pairs, found.seq_relationship_logits, atol=1e-5, rtol=0)


def test_a_sharded_folder_loads(theirs, tmp_path):
    _, model = theirs
    model.save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    whole, parts = huggingface.load(theirs[0])[1], huggingface.load(tmp_path / "parts")[1]
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_pickled_parts_load_too(theirs, tmp_path):
    folder, model = theirs
    tensors = forms(model)["gamma and beta"]
    places = {name: f"part-{number % 2}.bin" for number, name in enumerate(tensors)}
    for part in ("part-0.bin", "part-1.bin"):
        torch.save({n: t for n, t in tensors.items() if places[n] == part}, tmp_path / part)
    index = {"metadata": {}, "weight_map": places}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    whole, parts = huggingface.load(folder)[1], huggingface.load(tmp_path)[1]
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_sharded_folder_that_lacks_a_part_says_which(tmp_path, theirs):
    theirs[1].save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    lost = sorted((tmp_path / "parts").glob("model-*"))[1]
    lost.unlink()
    message = rf"index\.json: 1 of its \d+ files are missing, {lost.name}"
    with pytest.raises(InputError, match=message):
        huggingface.load(tmp_path / "parts")


@pytest.mark.parametrize("size", [1, 3000, 10**9])
def test_files_are_no_larger_than_asked_and_transformers_opens_them(
    tmp_path, state, vocab_folder, size
):
    huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder, shard_bytes=size)
    files = list((tmp_path / "out").glob("*.safetensors"))
    assert (tmp_path / "out" / "model.safetensors.index.json").exists() == (len(files) > 1)
    largest = max(tensor.nbytes for tensor in state.values())
    for path in files:
        assert sum(t.nbytes for t in load_file(path).values()) <= max(size, largest)
    masked, _ = our_logits(CONFIG, state)
    found = their_logits(AutoModelForPreTraining.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(found.prediction_logits[0, 1:], masked, atol=1e-5, rtol=0)
    again = huggingface.load(tmp_path / "out")[1]
    assert all(torch.equal(again[name], state[name]) for name in state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_size_are_the_nearest(tmp_path, state, vocab_folder, dtype):
    huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder, dtype=dtype)
    again = huggingface.load(tmp_path / "out")[1]
    assert all(torch.equal(again[name], state[name].to(dtype).float()) for name in state)
    opened = AutoModelForPreTraining.from_pretrained(tmp_path / "out")
    assert opened.dtype == dtype


def test_a_weight_that_half_precision_cannot_hold_is_refused(tmp_path, state, vocab_folder):
    state["pooler.dense.bias"][0] = 1e6
    with pytest.raises(InputError, match=r"pooler\.dense\.bias: a value of 1e\+06 is too large"):
        huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder, dtype=torch.float16)


def test_missing_heads_are_drawn_and_said(tmp_path, theirs):
    bare = TheirEncoder(theirs[1].config, add_pooling_layer=False)
    bare.save_pretrained(tmp_path / "bare")
    _, state, notes = huggingface.load(tmp_path / "bare")
    drawn = {note.split(":")[0] for note in notes}
    heads = ("pooler", "masked_head", "next_sentence")
    assert drawn == {name for name in state if name.startswith(heads)}
    again = huggingface.load(tmp_path / "bare")[1]
    assert all(torch.equal(state[name], again[name]) for name in state)
    words = bare.embeddings.word_embeddings.weight
    assert torch.equal(state["encoder.embeddings.word.weight"], words)


def test_a_head_of_another_task_is_left_out_and_said(theirs):
    folder, model = theirs
    extra = {"classifier.weight": torch.zeros(3, 16)}
    save_file({**forms(model)["with the decoder"], **extra}, folder / "model.safetensors")
    assert huggingface.load(folder)[2] == ["classifier.weight: left out, no part of pre-training"]


def change(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_another_architecture_is_refused_by_name(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 32, "vocab_size": 50}  # fmt: skip
    RobertaModel(RobertaConfig(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"RobertaModel.*roberta.*not BERT"):
        huggingface.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act is relu, only gelu"),
        ({"type_vocab_size": 4}, "type_vocab_size is 4"),
        ({"type_vocab_size": 3}, "type_vocab_size is 3"),
        ({"vocab_size": 30522}, r"word_embeddings.weight is of shape .*asks for \(30522, 16\)"),
        ({"num_hidden_layers": 3}, "16 tensors are missing"),
    ],
)
def test_a_config_that_cannot_be_computed_is_refused(theirs, changes, message):
    change(theirs[0], **changes)
    with pytest.raises(InputError, match=message):
        huggingface.load(theirs[0])


def test_an_untied_decoder_is_refused(theirs):
    folder, model = theirs
    tensors = forms(model)["with the decoder"]
    tensors["cls.predictions.decoder.weight"] += 1
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match="not tied"):
        huggingface.load(folder)


@pytest.mark.parametrize("entries", [WORDS[:-1], [*WORDS, "more"]])
def test_a_vocabulary_of_another_size_is_refused(folder, state, tmp_path, entries):
    message = f"{len(entries)} entries, the model {len(WORDS)} word embeddings"
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    with pytest.raises(InputError, match=message):
        huggingface.load(folder)
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    with pytest.raises(InputError, match=message):
        huggingface.load(folder)
    with pytest.raises(InputError, match=message):
        huggingface.save(tmp_path / "again", CONFIG, state, folder)


def test_rows_that_only_pad_the_matrix_are_cut_off(tmp_path, state, vocab_folder):
    rows = -(-len(WORDS) // 64) * 64
    config = ModelConfig(**{**vars(CONFIG), "vocab_size": rows})
    torch.manual_seed(0)
    wide = bert.BertForPreTraining(config).state_dict()
    huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder)
    tensors = {huggingface.their_name(name): tensor for name, tensor in wide.items()}
    save_file(tensors, tmp_path / "out" / "model.safetensors")
    change(tmp_path / "out", vocab_size=rows)
    found, again, notes = huggingface.load(tmp_path / "out")
    assert found.vocab_size == len(WORDS)
    assert notes == [f"word embeddings: {rows - len(WORDS)} of {rows} rows have no entry, left out"]
    words = "encoder.embeddings.word.weight"
    assert torch.equal(again[words], wide[words][: len(WORDS)])


def test_a_vocabulary_in_two_minds_is_refused(folder):
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[6], lines[7] = lines[7], lines[6]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"line 7 of vocab\.txt is 'c', that id is 'b'"):
        huggingface.load(folder)


def test_weights_of_something_else_are_refused(theirs):
    save_file({"features.weight": torch.zeros(3)}, theirs[0] / "model.safetensors")
    with pytest.raises(InputError, match=r"no BERT, it has no word_embeddings\.weight"):
        huggingface.load(theirs[0])


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


def test_broken_files_are_named(theirs):
    folder, _ = theirs
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read"):
        huggingface.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights there"):
        huggingface.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json: not JSON"):
        huggingface.load(folder)


def test_a_pickle_that_would_run_code_is_refused(theirs):
    folder, _ = theirs
    (folder / "model.safetensors").unlink()
    torch.save({"bert.x": pytest.raises}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: cannot be read"):
        huggingface.load(folder)


def test_the_card_says_what_the_run_was(tmp_path, state, vocab_folder):
    common = {"version": 1, "inputs": {}, "files": {}, "summary": "", "finished": "now"}
    prepare = Manifest(
        stage="prepare", fingerprint="p" * 64, seconds=1.0,
        config={"corpus": {"name": "books", "language": "en", "files": []}},
        figures={"documents": {"written": 1234}, "totals": {"tokens": 99000}}, **common,
    )  # fmt: skip
    train = Manifest(
        stage="train", fingerprint="t" * 64, seconds=7200.0,
        config={"optimizer": {"name": "adamw", "learning_rate": 1e-4}, "batch_size": 256},
        figures={"steps": 5000, "validation": {"masked_lm_accuracy": 0.4321}}, **common,
    )  # fmt: skip
    huggingface.save(tmp_path / "out", CONFIG, state, vocab_folder, [train, prepare])
    card = (tmp_path / "out" / "README.md").read_text()
    for words in ("license: ", "fill in", "language: en", "| documents | 1,234 |",
                  "| learning rate | 0.0001 |", "| steps | 5,000 |", "| hours | 2.00 |",
                  "| masked lm accuracy | 0.4321 |"):  # fmt: skip
        assert words in card
    more = replace(prepare, config={"corpus": {"name": "wiki"}})
    huggingface.save(tmp_path / "both", CONFIG, state, vocab_folder, [train, prepare, more])
    card = (tmp_path / "both" / "README.md").read_text()
    for words in ("## Data, 1 of 2", "| corpus | books |", "## Data, 2 of 2", "| corpus | wiki |"):
        assert words in card


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_all_corpora_are_tokenized_as_training_saw_them(shared_data, tmp_path, name):
    (tmp_path / "vocab").mkdir()
    source = shared_data / "vocab" / f"bert-base-{name}-vocab.txt"
    (tmp_path / "vocab" / "vocab.txt").write_bytes(source.read_bytes())
    ours = WordPiece.load(tmp_path / "vocab")
    config = ModelConfig(**{**vars(CONFIG), "vocab_size": ours.size})
    weights = bert.BertForPreTraining(config).state_dict()
    huggingface.save(tmp_path / "out", config, weights, tmp_path / "vocab")
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    files = [path for path in sorted(shared_data.glob("wiki_text/*/**/*")) if path.is_file()]
    files = files[::40] + sorted(shared_data.glob("books/*.md"))[::20]
    for path in files:
        lines = path.read_bytes()[:40_000].decode(errors="ignore").splitlines()
        lines = [line for line in lines if "[" not in line]  # special tokens are text to us
        ids, _ = ours.encode(lines)
        found = opened(lines, add_special_tokens=False)["input_ids"]
        assert [number for line in found for number in line] == ids.tolist(), path
