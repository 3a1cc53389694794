#!/usr/bin/env bash
# onnxruntime_extensions 0.15.2 (pp_api.Tokenizer, the C API), beside tokenizers 0.23.3.
#
# Guess: opened on the folder of an encoder with byte-level BPE, it adds [CLS] and [SEP] as tokenizer.json's
#   post-processor says, at the latest with add_special_tokens=True, or refuses the folder.
# Seen: it opens and adds neither, whatever the option and the post-processor (TemplateProcessing, BertProcessing). It
#   leaves out the normalizer too (Lowercase, NFC), and Digits before ByteLevel. Only `add_bos_token` and
#   `add_eos_token` of tokenizer_config.json, which name the two tokens of a decoder, bring them.
# What follows: an encoder that pools [CLS] pools the first word instead. Compare ids before serving.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime_extensions==0.15.2 tokenizers==0.23.3
cat > "$work/try.py" <<'PY'
import json
import sys
from pathlib import Path

from onnxruntime_extensions import pp_api
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

folder = Path(sys.argv[1])
SPECIAL = ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"]
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
library = Tokenizer(models.BPE())
library.pre_tokenizer = byte_level
trainer = trainers.BpeTrainer(
    vocab_size=300, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
)
library.train_from_iterator(["The fox has 12 dogs"] * 9, trainer)


def compare(text, settings):
    """Return the tokens of the folder in tokenizers and in onnxruntime_extensions."""
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    library.save(str(folder / "tokenizer.json"))
    other = pp_api.Tokenizer(str(folder), {"add_special_tokens": True})
    return library.encode(text).tokens, [library.id_to_token(int(number)) for number in other.tokenize(text)]


def show(name, text, settings=None):
    """Print both and return whether they are equal, and whether but for [CLS] and [SEP]."""
    want, got = compare(text, settings or {})
    print(f"{name}: {want} {got}")
    return want == got, want[1:-1] == got


template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
seen = []
for after in (processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0)), template):
    library.post_processor = after
    seen.append(show(type(after).__name__, "The fox"))
decoder = {"bos_token": "[CLS]", "eos_token": "[SEP]", "add_bos_token": True, "add_eos_token": True}
seen.append(show("add_bos_token", "The fox", decoder))
for normalizer, text in ((normalizers.Lowercase(), "The fox"), (normalizers.NFC(), "e\u0301")):
    library.normalizer = normalizer
    seen.append(show(type(normalizer).__name__, text, decoder))
library.normalizer = None
library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
seen.append(show("Digits", "has 12 dogs", decoder))
sys.exit(seen != [(False, True), (False, True), (True, False), (False, False), (False, False), (False, False)])
PY
mkdir "$work/folder"
"$work/venv/bin/python" "$work/try.py" "$work/folder"
