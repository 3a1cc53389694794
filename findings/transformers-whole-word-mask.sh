#!/usr/bin/env bash
# transformers 5.24.0 with tokenizers 0.23.3: whole-word masking and tokenizers whose offsets count the blank.
#
# Guess: DataCollatorForLanguageModeling(whole_word_mask=True) masks whole words, whatever the tokenizer.
# Seen: a word is a run of tokens without a gap between their offsets. Offsets are trimmed by the post-processors ByteLevel
#   and RobertaProcessing alone (`trim_offsets` of the pre-tokenizer does nothing), so that with byte-level BPE and
#   TemplateProcessing, as ModernBERT has it, and with Metaspace, as XLM-R has it, each blank belongs to the next token:
#   the whole text is one word. It is masked from end to end, or, in six of seven draws, not at all.
# What follows: the mean share of masked tokens looks right (15 %); print `labels` of one text before a training. A
#   ByteLevel post-processor in front of the template brings the words of byte-level BPE back.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
cat > "$work/try.py" <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

SPECIAL = ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"]
LINES = ["Seventeen unbelievable elephants wandered along while the quick foxes were jumping over lazy dogs"] * 9
template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
trimmed = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
KINDS = {
    "words": (pre_tokenizers.BertPreTokenizer(), template),
    "byte-level": (byte_level, template),
    "byte-level, trimmed": (byte_level, trimmed),
    "Metaspace": (pre_tokenizers.Metaspace(), template),
}
found = {}
for name, (before, after) in KINDS.items():
    library = Tokenizer(models.BPE(unk_token="[UNK]"))
    library.pre_tokenizer = before
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    library.post_processor = after
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token="[PAD]", mask_token="[MASK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    row = dict(tokenizer(LINES[0], return_special_tokens_mask=True, return_offsets_mapping=True))
    collate = DataCollatorForLanguageModeling(
        tokenizer, whole_word_mask=True, mlm_probability=0.15, return_tensors="np", seed=0
    )
    masked = [float((collate([dict(row)])["labels"][0, 1:-1] != -100).mean()) for _ in range(600)]
    found[name] = (sum(masked) / len(masked), {0.0, 1.0} >= {round(share, 2) for share in masked})
    print(f"{name}: {found[name][0]:.2f} of the tokens on average, all or nothing: {found[name][1]}")
right = all(0.1 < mean < 0.2 for mean, _ in found.values())
sys.exit(not (right and [one for _, one in found.values()] == [False, True, False, True]))
PY
"$work/venv/bin/python" -W ignore "$work/try.py" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
