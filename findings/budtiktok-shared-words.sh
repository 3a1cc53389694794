#!/usr/bin/env bash
# budtiktok 0.1.0 ("Drop-in replacement for HuggingFace tokenizers API"), beside tokenizers 0.23.3.
#
# Guess: a tokenizer.json of byte-level BPE gives its own ids, whatever other tokenizers the process has opened.
# Seen: the second that is opened gives each word that the first has seen the ids of the first: words are remembered
#   for the whole process, not for a tokenizer. In a process of its own it is right. And "[MASK]" in a text is not the
#   special token but letters, in each of them.
# What follows: comparing a teacher's tokenizer with a student's there shows no difference. One process, one
#   tokenizer.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check budtiktok==0.1.0 tokenizers==0.23.3
cd "$place"
cat > run.py <<'PYTHON'
import json
import sys

from budtiktok import Tokenizer

found = []
for name in sys.argv[2:]:
    found.append(list(Tokenizer.from_file(name).encode(sys.argv[1], add_special_tokens=False).ids))
print(json.dumps(found))
PYTHON
cat > try.py <<'PYTHON'
import json
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CORPORA = {"one.json": "the cat sat on the mat", "two.json": "a dog barked at the moon then ran home"}


def build(name: str) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([CORPORA[name]] * 9, trainer)
    single = ("[CLS]", 1), ("[SEP]", 2)
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=list(single))
    made.save(name)
    return made


def run(text: str, *names: str) -> list[list[int]]:
    command = [sys.executable, "run.py", text, *names]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


TEXT, MASKED = "the cat sat", "the [MASK]"
made = {name: build(name) for name in CORPORA}
right = [made[name].encode(TEXT, add_special_tokens=False).ids for name in CORPORA]
alone = [run(TEXT, name)[0] for name in CORPORA]
together = run(TEXT, *CORPORA)
expected = [3 in made[name].encode(MASKED, add_special_tokens=False).ids for name in CORPORA]
masked = [3 in run(MASKED, name)[0] for name in CORPORA]
print("tokenizers:", right)
print("budtiktok, a process each:", alone)
print("budtiktok, one process:", together)
print("[MASK] is found: tokenizers", expected, "budtiktok", masked)
wrong = together[0] == together[1] == right[0] != right[1]
sys.exit(not (alone == right and wrong and expected == [True, True] and masked == [False, False]))
PYTHON
venv/bin/python try.py
