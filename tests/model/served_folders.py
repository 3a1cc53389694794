"""Folders in Hugging Face's format of each kind that is served: tiny, with random weights."""

import json
import struct
from dataclasses import replace
from string import ascii_lowercase

import torch
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers, processors

from model.encoders.architectures import build_model
from model.finetuning import saved_model
from model.finetuning.heads import BertWithHead, HeadConfig
from model.huggingface import bert_format
from pipeline.tokenization import wordpiece
from pipeline.tokenization.wordpiece import WordPiece
from tests.model import tiny_bert, tiny_modernbert

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def make_bpe(folder):
    """Write the tokenizer of a RoBERTa: byte-level BPE, as vocab.json and merges.txt too."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator(["the uber the cat"], 300, special_tokens=SPECIAL)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    framed(made, folder)
    made.save_model(str(folder))
    (folder / "vocab.json").write_text(json.dumps(made.get_vocab()))  # with <mask>
    return folder


def make_own(folder):
    """Write the tokenizer of a BERT of ours, as `pipeline.vocab` does."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(wordpiece.build(tiny_bert.WORDS, new=True))
    return folder


def make_unigram(folder):
    """Write the tokenizer of an XLM-R: Unigram with Metaspace, as a model of SentencePiece too."""
    pieces = [*SPECIAL, "▁", *(f"▁{one}" for one in ("the", "uber", *ascii_lowercase)), *ascii_lowercase, "über"]
    made = Tokenizer(models.Unigram([(piece, -float(number)) for number, piece in enumerate(pieces)], unk_id=3))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.add_special_tokens([*SPECIAL, AddedToken("<mask>", lstrip=True)])
    framed(made, folder)
    kinds = dict(zip(("<unk>", "<s>", "</s>"), (2, 3, 3), strict=True)) | dict.fromkeys(pieces[len(SPECIAL) :], 1)
    listed = [
        field(1, field(1, one.encode()) + struct.pack("<BfBB", 21, -float(number), 24, kind))
        for number, (one, kind) in enumerate(kinds.items(), 1)  # the ids of XLM-R are one more
    ]
    (folder / "sentencepiece.bpe.model").write_bytes(b"".join(listed))
    return folder


def field(number, content):
    """Return a field of a protobuf message of at most 127 bytes."""
    return bytes([8 * number + 2, len(content)]) + content


def framed(made, folder):
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


VOCABULARIES = {"roberta": make_bpe, "xlm-roberta": make_unigram}
SIZES = {"bert": tiny_bert.CONFIG, "own bert": tiny_bert.CONFIG, "modernbert": tiny_modernbert.CONFIG}
SIZES |= {name: replace(tiny_bert.CONFIG, architecture=name) for name in VOCABULARIES}
VOCABULARIES["own bert"] = make_own


def pretrained(folder, size, vocab):
    torch.manual_seed(0)
    bert_format.save(folder, size, build_model(size).state_dict(), vocab)


def of_sentences(folder, size, vocab):
    pretrained(folder, size, vocab)
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": size.hidden, "pooling_mode_mean_tokens": True})
    )


def tuned(kind, outputs=2, **head):
    def save(folder, size, vocab):
        torch.manual_seed(0)
        model = BertWithHead(size, HeadConfig(kind, outputs, **head))
        labels = ["no", "yes"] if kind != "answer" and outputs == 2 else []
        saved_model.save(folder, saved_model.SavedModel(model, labels), size, vocab)

    return save


def made(tmp_path, architecture, make):
    vocab = VOCABULARIES.get(architecture, tiny_bert.make_vocabulary)(tmp_path / "vocab")
    make(tmp_path / "model", replace(SIZES[architecture], vocab_size=WordPiece.load(vocab).size), vocab)
    return tmp_path / "model"
