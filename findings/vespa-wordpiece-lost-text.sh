#!/usr/bin/env bash
# com.yahoo.vespa:linguistics-components 8.700.24 (WordPieceEmbedder, which bert-embedder reads by), Java 17, beside
# tokenizers 0.23.3 (PyPI).
#
# Guess: with the vocabulary of an uncased BERT it makes BERT's tokens, and [UNK] of a word that it cannot build.
# Seen: [UNK] is never made: what is not found from a place on is left out up to the word's end, without a token.
#   "helloxyz" is "hello", "日本語" is "日", though each character is in the vocabulary, and an unknown word is nothing.
#   Known words, accents, numbers and marks are right.
# What follows: texts of other words have the same vector; an encoder reads tokens that it was not trained on. Use
#   hugging-face-embedder with tokenizer.json.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
{
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>try</groupId><artifactId>try</artifactId><version>1</version><dependencies>'
    for name in linguistics-components linguistics config-lib vespajlib; do
        echo "<dependency><groupId>com.yahoo.vespa</groupId><artifactId>$name</artifactId>"
        echo '<version>8.700.24</version></dependency>'
    done
    echo '</dependencies></project>'
} > pom.xml
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import com.yahoo.language.process.Embedder;
import com.yahoo.language.wordpiece.WordPieceEmbedder;
import java.nio.file.Files;
import java.nio.file.Path;

public class Try {
    public static void main(String[] given) throws Exception {
        var embedder = new WordPieceEmbedder.Builder("words.txt").build();
        for (String text : Files.readAllLines(Path.of("texts.txt")))
            System.out.println(embedder.embed(text, new Embedder.Context("try")));
    }
}
JAVA
cat > try.py <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] hello cafe word ##s 10 km state of don t 日 本 語 , . ? ! ( ) - '".split()
SAME = ["Hello, words.", "(hello) ?!", "10 km", "state-of-word", "don't", "café"]
LOST = {"hello helloxyz word": "hello hello word", "hello xyz word": "hello word", "日本語": "日"}
Path("words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
Path("texts.txt").write_text("\n".join([*SAME, *LOST]) + "\n", encoding="utf-8")
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
original = BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=True)
right = []
for text, line in zip([*SAME, *LOST], lines, strict=True):
    wanted = original.encode(text, add_special_tokens=False).tokens
    found = [WORDS[n] for n in json.loads(line)]
    print(f"{text!r} tokenizers {wanted} Vespa {found}")
    right.append(found == (wanted if text in SAME else LOST[text].split()) and (text in SAME or found != wanted))
sys.exit(not all(right))
PYTHON
env/bin/python try.py
