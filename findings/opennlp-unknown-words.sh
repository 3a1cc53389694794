#!/usr/bin/env bash
# org.apache.opennlp:opennlp-tools 2.5.11 (WordpieceTokenizer), Java 17, beside tokenizers 0.23.3 (PyPI).
#
# Guess: of words that are in the vocabulary, whole or in pieces, and of unknown ones it makes the tokens of BERT.
# Seen: an unknown word is not [UNK], but the pieces that were found before its unknown part, and then [UNK]: "hel ##lo
#   [UNK]". Marks that follow each other are one word: of "?!", "..." and ")." the first mark is left and [UNK], though
#   each is in the vocabulary. Words of 51 to 100 letters are unknown. Special tokens in a text are cut at their
#   brackets. Words, single marks and numbers are right.
# What follows: an encoder that is served with it reads other tokens than it was trained on, at each quotation and
#   abbreviation. Open tokenizer.json by ai.djl.huggingface.tokenizers instead.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.opennlp</groupId><artifactId>opennlp-tools</artifactId><version>2.5.11</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import opennlp.tools.tokenize.WordpieceTokenizer;

public class Try {
    public static void main(String[] given) throws Exception {
        var words = new HashSet<String>(Files.readAllLines(Path.of("words.txt")));
        for (String text : Files.readAllLines(Path.of("texts.txt")))
            System.out.println(String.join(" ", new WordpieceTokenizer(words).tokenize(text)));
    }
}
JAVA
cat > try.py <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a ##a hel ##lo hello 3 , . ? ! ( ) word ##s".split()
RIGHT = ["hello, words.", "hello a 3.", "(hello)", "a" * 50]
OTHER = ["hellox", "hello?!", "hello...", "a (hello).", "a" * 60, "a [MASK]."]
Path("words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
Path("texts.txt").write_text("\n".join(RIGHT + OTHER) + "\n", encoding="utf-8")
command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
original = BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=False)
differ = []
for text, found in zip(RIGHT + OTHER, lines, strict=True):
    wanted = original.encode(text).tokens
    differ.append(found.split() != wanted)
    print(f"{text[:20]} tokenizers {' '.join(wanted)[:40]} OpenNLP {found[:40]}")
sys.exit(differ != [False] * len(RIGHT) + [True] * len(OTHER))
PYTHON
env/bin/python try.py
