#!/usr/bin/env bash
# sentence-transformers 6.2.0 (Pooling with include_prompt=False), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: a model whose prompt is not to be pooled, as INSTRUCTOR's, pools all tokens of the text, from its first word.
# Seen: the prompt's length is that of its tokens alone. A byte-level BPE, as ModernBERT's and RoBERTa's, and
#   Metaspace make a token of the blank at the end of "query: ", which in the whole text belongs to the first word:
#   that word's token is left out of the mean. Of a text of one word nothing is left but [SEP]: all such texts, such as
#   "paris" and "london", differ by their context alone. WordPiece is right.
# What follows: give prompts without a blank at their end, and the blank to each text, or train with the prompt
#   included.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    sentence-transformers==6.2.0 transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
PROMPT, TEXTS = "query: ", ["paris", "what is a token"]
LEARN = [PROMPT + text for text in TEXTS for _ in range(50)]
KINDS = {
    "byte-level BPE": (
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    ),
    "Metaspace": (
        models.BPE(unk_token="[UNK]"),
        pre_tokenizers.Metaspace(),
        trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False),
    ),
    "WordPiece": (
        models.WordPiece(unk_token="[UNK]"),
        pre_tokenizers.BertPreTokenizer(),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False),
    ),
}


def opened(kind: str) -> SentenceTransformer:
    tokenizer = Tokenizer(KINDS[kind][0])
    tokenizer.pre_tokenizer = KINDS[kind][1]
    tokenizer.train_from_iterator(LEARN, KINDS[kind][2])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    ).save_pretrained(kind)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(kind)
    return SentenceTransformer(modules=[Transformer(kind), Pooling(16, "mean", include_prompt=False)], device="cpu")


def pooled(model: SentenceTransformer, prompt: str, text: str) -> list[str]:
    tokens = model.encode(PROMPT + text.strip(), output_value="token_embeddings", convert_to_tensor=True)
    vector = model.encode(text, prompt=prompt, convert_to_tensor=True)
    names = model.tokenizer.convert_ids_to_tokens(model.tokenizer(PROMPT + text.strip())["input_ids"])
    (start,) = (n for n in range(len(names)) if torch.allclose(tokens[n:].mean(0), vector, atol=1e-5))
    return names[start:]


seen, whole = {}, []
for kind in KINDS:
    model = opened(kind)
    seen[kind] = [pooled(model, PROMPT, text) for text in TEXTS]
    moved = [pooled(model, PROMPT.strip(), " " + text) for text in TEXTS]
    whole.append([len(tokens) for tokens in moved])
    print(f"{kind} pools {seen[kind]}; with the blank in the text {moved}")
blank = [["[SEP]"], ["Ġis", "Ġa", "Ġtoken", "[SEP]"]]
wanted = {
    "byte-level BPE": blank,
    "Metaspace": [[token.replace("Ġ", "▁") for token in tokens] for tokens in blank],
    "WordPiece": [["paris", "[SEP]"], ["what", "is", "a", "token", "[SEP]"]],
}
sys.exit(not (seen == wanted and whole == [[2, 5]] * 3))
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
