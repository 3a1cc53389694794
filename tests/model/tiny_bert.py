"""A BERT of a few thousand parameters and its vocabulary, in our form and in transformers'."""

from string import ascii_lowercase

import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForPreTraining

from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.huggingface.names import NAMES
from pipeline.tokenization.wordpiece import SPECIAL
from tests.model.sizes import small

WORDS = [*SPECIAL, *ascii_lowercase, *(f"##{c}" for c in ascii_lowercase), "the", "Über", "uber", ".", "中", "文"]
CONFIG = small(len(WORDS), positions=64, initializer_range=0.1)


def make_vocabulary(folder, lowercase=True):
    """Write a vocabulary of both kinds of file; the folder."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lowercase)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def our_state():
    """Random weights, always the same."""
    torch.manual_seed(0)
    return build_model(CONFIG).state_dict()


def write_theirs(folder):
    """Write a folder as transformers itself does; its model."""
    torch.manual_seed(1)
    sizes = {name: getattr(CONFIG, ours) for ours, name in NAMES["bert"].sizes.items()}
    model = BertForPreTraining(BertConfig(**sizes)).eval()
    model.save_pretrained(folder)
    return model


def our_logits(config, state):
    """Of one sequence of tokens 5 .. 34, at every position."""
    model = build_model(config).eval()
    model.load_state_dict(state)
    each, none = torch.arange(30), torch.zeros(30, dtype=torch.long)
    batch = Batch(each + 5, none, each, torch.tensor([0, 30]).int(), 30, each, each, none[:1])
    with torch.no_grad():
        return model(batch)


def their_logits(model):
    """What a model of transformers' answers to the same sequence."""
    with torch.no_grad():
        return model.eval()(torch.arange(30)[None] + 5)


def forms(model):
    """State dicts as they are found in the wild."""
    full = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in full.items()
    }
    buffers = {"bert.embeddings.position_ids": torch.arange(64)[None]}
    untold = {name: t for name, t in full.items() if name != "cls.predictions.bias"}
    return {"with the decoder": full, "gamma and beta": old | buffers, "only decoder.bias": untold}
