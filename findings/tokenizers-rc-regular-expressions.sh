#!/usr/bin/env bash
# tokenizers 1.0.0rc3 (PyPI).
# Guess: a tokenizer.json whose pre-tokenizer splits by a plain regular expression, such as [0-9]{1,3}, is read by the
#   release candidate as by 0.23.3, or refused when it is loaded.
# Seen: it loads without a word; every encode then raises ValueError, that "this `Split` pattern needs a system-regex
#   backend". The Python wheel knows the expressions of a few published models by heart and has no engine for others,
#   so that look-arounds have nothing to do with it. FixedLength and Split by a string work. What it can read shows at
#   the first text alone.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/old" && "$place/old/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
python3 -m venv "$place/new" && "$place/new/bin/pip" install --quiet --disable-pip-version-check tokenizers==1.0.0rc3

"$place/old/bin/python" - "$place" <<'PY'
import sys
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

cuts = {
    "digits": pre_tokenizers.Split(Regex("[0-9]{1,3}"), "isolated"),
    "string": pre_tokenizers.Split("1", "isolated"),
    "length": pre_tokenizers.FixedLength(3),
}
for name, cut in cuts.items():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "123": 1, "4": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = cut
    tokenizer.save(f"{sys.argv[1]}/{name}.json")
PY

cat > "$place/read.py" <<'PY'
import sys
from tokenizers import Tokenizer

for name in ("digits", "string", "length"):
    tokenizer = Tokenizer.from_file(f"{sys.argv[1]}/{name}.json")
    try:
        print(name, "loads, then", list(tokenizer.encode("1234").ids))
    except Exception as error:
        print(name, "loads, then", type(error).__name__)
PY
old=$("$place/old/bin/python" "$place/read.py" "$place")
new=$("$place/new/bin/python" "$place/read.py" "$place")
printf '0.23.3:\n%s\n1.0.0rc3:\n%s\n' "$old" "$new"
[[ $old == *"digits loads, then [1, 2]"* && $new == *"digits loads, then ValueError"* ]]
[[ $new == *"length loads, then [1, 2]"* && $new == *"string loads, then ["* ]]
