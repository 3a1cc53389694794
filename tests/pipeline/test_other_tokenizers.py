"""Any tokenizer.json works from text to model: byte-level BPE, also of more than 65,536 entries."""

import dataclasses
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

from model.config import DataConfig, ObjectiveConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format, vocabulary
from model.loader.loader import Loader
from pipeline import convert, prepare, vocab
from pipeline.config import ConvertConfig, CorpusConfig, VocabConfig
from pipeline.errors import ConfigError
from pipeline.shards import open_folder
from pipeline.stages import stage
from pipeline.storage.checksums import sha256
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import losses
from tests.model.sizes import small
from tests.support import forked, preparing
from tests.support.refusals import refused

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
GEMMA = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
ROLES = ("pad", "unk", "cls", "sep", "mask")
TEXT = [
    f"The mill number {n} stood by the river. Its wheel turned <mask> {n % 7} times a day, they "
    f"said. Nobody [MASK] knew why; naïve visitors asked 中文 {n}. "
    f"他走了。真的嗎？是的 {n}！"
    for n in range(60)
]


def write_tokenizer(folder: Path, special: tuple[str, ...], most: int) -> Path:
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
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an existing vocabulary and the shards made with it."""
    name, special, most = request.param
    folder = tmp_path_factory.mktemp(name)
    existing = write_tokenizer(folder / "existing", special, most)
    corpus = CorpusConfig(name="none", reader="none")
    config = VocabConfig(corpus=corpus, source="s", out=str(folder / "vocab"), existing=str(existing))
    stage.run("vocab", config, vocab.make)
    (folder / "a.txt").write_text("\n\n".join(TEXT))
    shards = preparing.settings(
        "text",
        folder / "a.txt",
        folder / "vocab",
        options={"document": "paragraph"},
        pairs="none",
        out=str(folder / "prepare"),
        validation_share=0.2,
        sequence_length=256,
        cross_documents=False,
    )
    stage.run("prepare", shards, prepare.make)
    return folder


def test_documents_have_the_ids_of_the_library(made: Path) -> None:
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


def test_special_tokens_are_those_of_the_file_and_are_never_masked(made: Path) -> None:
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


def test_a_model_with_it_is_opened_by_transformers(made: Path) -> None:
    wordpiece = WordPiece.load(made / "vocab")
    config = small(
        wordpiece.size,
        name="x",
        architecture="modernbert",
        feed_forward=24,
        positions=64,
        local_window=8,
        initializer_range=0.2,
    )
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


@pytest.mark.parametrize(
    "own",
    [
        None,
        processors.ByteLevel(trim_offsets=True),
        processors.RobertaProcessing(("</s>", 2), ("<s>", 0)),
        processors.TemplateProcessing(single="$A </s>", pair="$A $B", special_tokens=[("</s>", 2)]),
    ],
    ids=["none", "offsets", "roberta", "end only"],
)
def test_transformers_frames_texts_as_training_does(own: processors.PostProcessor | None) -> None:
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]
    library = Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, []))
    library.add_special_tokens(names[:-1])
    if own is not None:
        library.post_processor = own
    source = vocabulary.framed(library.to_str(), segments=False)
    made = Tokenizer.from_str(source)
    assert made.encode("a").ids == [0, 5, 2]
    assert made.encode("a", "a").ids == [0, 5, 2, 5, 2]
    assert vocabulary.framed(source, segments=False) == source


@pytest.mark.slow
def test_a_modernbert_of_transformers_is_trained_further_on_its_shards(made: Path) -> None:
    wordpiece = WordPiece.load(made / "vocab")
    config = ModernBertConfig(
        vocab_size=wordpiece.size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        local_attention=8,
        max_position_embeddings=256,
        pad_token_id=wordpiece.pad,
        cls_token_id=wordpiece.cls,
        sep_token_id=wordpiece.sep,
        bos_token_id=wordpiece.cls,
        eos_token_id=wordpiece.sep,
    )
    torch.manual_seed(0)
    ModernBertForMaskedLM(config).save_pretrained(made / "published")
    AutoTokenizer.from_pretrained(made / "vocab").save_pretrained(made / "published")
    run = forked.module(
        *shlex.split(
            f"model.train workdir={made} model=auto start={made}/published objective=modern "
            "optimizer=stable_adamw clip=null optimizer.learning_rate=1e-2 batch_size=8 micro_batch=8 "
            "steps=20 log_every=1 evaluate_every=20 save_every=20 threads=1 tracking=none"
        ),
        ranks=1,
    )
    assert run.returncode == 0, run.stderr
    seen = losses(made / "train")
    assert seen[0] == pytest.approx(math.log(wordpiece.size), abs=0.5)
    assert seen[-1] < seen[0] - 0.3
    out = ConvertConfig(
        workdir=str(made), out=str(made / "trained"), train=str(made / "train"), vocab=str(made / "vocab")
    )
    assert stage.run("convert", out, convert.make).figures["largest_logit_difference"] < 1e-5
    assert AutoModelForMaskedLM.from_pretrained(out.out).config.vocab_size == wordpiece.size
