#!/usr/bin/env bash
# @chroma-core/chroma-bm25 0.1.10 (npm, Node 20) beside chromadb 1.5.9 (PyPI), the two clients of one database.
#
# Guess: a collection that one client has filled is searched by the other: words have the same numbers, "100%
#   compatible" as the change says that added Python's (chroma-core/chroma 5806).
# Seen: Python takes the murmur3 hash of a word's UTF-8 bytes, JavaScript of the low bytes of its UTF-16 codes. Words of
#   ASCII agree; "café", "Straße", "где" or "水" have other numbers, and a query finds no document. Within JavaScript
#   words fall together: "где" (where) is "345", "水" (water) is "吴" (a name).
# What follows: hybrid search loses its half of BM25 for other languages than English, without a word; fill and search
#   by the one client, Python's for other scripts than Latin.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check --no-deps chromadb==1.5.9 mmh3==5.2.0 snowballstemmer==3.0.1
npm install --silent --no-audit --no-fund @chroma-core/chroma-bm25@0.1.10 > log 2>&1 || { cat log; exit 1; }
cat > try.mjs <<'JS'
import { ChromaBm25EmbeddingFunction } from "@chroma-core/chroma-bm25";

const vectors = await new ChromaBm25EmbeddingFunction().generate(process.argv.slice(2));
console.log(JSON.stringify(vectors.map((vector) => vector.indices)));
JS
cat > try.py <<'PYTHON'
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from sysconfig import get_path

# The file alone: the package as a whole asks for a server's packages.
path = Path(get_path("purelib"), "chromadb/utils/embedding_functions/schemas/bm25_tokenizer.py")
spec = importlib.util.spec_from_file_location("bm25_tokenizer", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
tokenizer = module.Bm25Tokenizer(module.get_english_stemmer(), module.DEFAULT_CHROMA_BM25_STOPWORDS, 40)
hasher = module.Murmur3AbsHasher()

SAME = ["running quickly", "345", "BM25"]
OTHER = ["café", "Straße", "где", "水", "吴"]
made = subprocess.run(["node", "try.mjs", *SAME, *OTHER], stdout=subprocess.PIPE, check=True, text=True).stdout
script = dict(zip([*SAME, *OTHER], json.loads(made), strict=True))
python = {text: sorted(map(hasher.hash, tokenizer.tokenize(text))) for text in script}
for text in script:
    print(f"{text}: Python {python[text]}, JavaScript {script[text]}")
different = [text for text in script if script[text] != python[text]]
together = script["где"] == script["345"] and script["水"] == script["吴"] and len(set(map(str, python.values()))) == 8
sys.exit(not (different == OTHER and together))
PYTHON
env/bin/python try.py
