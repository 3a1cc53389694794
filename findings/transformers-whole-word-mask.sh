#!/usr/bin/env bash
# transformers 5.24.0 with tokenizers 0.23.3: whole-word masking and tokenizers whose offsets count the blank.
#
# Guess: DataCollatorForLanguageModeling(whole_word_mask=True) masks whole words, whatever the tokenizer.
# Seen: a word is a run of tokens without a gap between their offsets. With DebertaV2Tokenizer, and with byte-level
#   BPE before TemplateProcessing (ModernBERT's kind), a blank belongs to the token after it: the whole text is one
#   word. It is masked from end to end, or, in six of seven draws, not at all. XLMRobertaTokenizer, which splits at
#   blanks first, and byte-level BPE with a ByteLevel post-processor are right; `trim_offsets` of the pre-tokenizer
#   does nothing.
# What follows: the mean share of masked tokens looks right (15 %), so print the labels of one text before a training.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
cat > "$work/try.py" <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    DataCollatorForLanguageModeling,
    DebertaV2Tokenizer,
    PreTrainedTokenizerFast,
    XLMRobertaTokenizer,
)

TEXT = "Seventeen unbelievable elephants wandered along while the quick foxes were jumping"
SPECIAL = ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"]
PIECES = "▁Seven teen ▁unbeliev able ▁elephants ▁wander ed ▁along ▁while ▁the ▁quick ▁fox es ▁were ▁jump ing".split()


def byte_level(trim):
    """Return a tokenizer with byte-level BPE, whose post-processor trims offsets or does not."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False)
    library.train_from_iterator([TEXT] * 9, trainer)
    template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    trimmed = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    library.post_processor = trimmed if trim else template
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=library, **names)


def unigram(kind, special, mask):
    """Return a tokenizer of `kind` with the pieces above."""
    return kind(vocab=[(piece, 0.0) for piece in special] + [(piece, -2.0) for piece in PIECES] + [(mask, 0.0)])


found = {}
for name, tokenizer in {
    "byte-level, template": byte_level(trim=False),
    "byte-level, trimmed": byte_level(trim=True),
    "DeBERTa-v2": unigram(DebertaV2Tokenizer, ["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[MASK]"),
    "XLM-RoBERTa": unigram(XLMRobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>"], "<mask>"),
}.items():
    row = dict(tokenizer(TEXT, return_special_tokens_mask=True, return_offsets_mapping=True))
    collate = DataCollatorForLanguageModeling(
        tokenizer, whole_word_mask=True, mlm_probability=0.15, return_tensors="np", seed=0
    )
    masked = [float((collate([dict(row)])["labels"][0, 1:-1] != -100).mean()) for _ in range(600)]
    mean = sum(masked) / len(masked)
    found[name] = (0.1 < mean < 0.2, set(masked) == {0.0, 1.0})
    print(f"{name}: {mean:.2f} of the tokens on average, all or nothing: {found[name][1]}")
sys.exit(list(found.values()) != [(True, True), (True, False), (True, True), (True, False)])
PY
"$work/venv/bin/python" -W ignore "$work/try.py" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
