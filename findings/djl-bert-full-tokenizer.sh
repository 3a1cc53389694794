#!/usr/bin/env bash
# ai.djl:api 0.36.0 (BertFullTokenizer), Java 17, beside tokenizers 0.23.3 (PyPI).
#
# Guess: BertFullTokenizer(vocabulary, lowerCase) cuts as BERT's own tokenizer: with false, for a cased model, words
#   stay as they are; Chinese characters are words each.
# Seen: accents are dropped with false too: "café" of a cased vocabulary is found as "cafe" or not at all. Chinese is
#   one word up to the next blank, which is [UNK], though each character is in the vocabulary. Zero-width spaces and
#   soft hyphens stay and make their words [UNK].
# What follows: open tokenizer.json by ai.djl.huggingface.tokenizers instead.
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
    <dependency><groupId>ai.djl</groupId><artifactId>api</artifactId><version>0.36.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import ai.djl.modality.nlp.DefaultVocabulary;
import ai.djl.modality.nlp.bert.BertFullTokenizer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

public class Try {
    public static void main(String[] given) throws Exception {
        List<String> words = Files.readAllLines(Path.of("words.txt"));
        var vocabulary = DefaultVocabulary.builder().add(words).optUnknownToken("[UNK]").build();
        for (boolean lower : new boolean[] {false, true})
            for (String text : Files.readAllLines(Path.of("texts.txt")))
                System.out.println(String.join(" ", new BertFullTokenizer(vocabulary, lower).tokenize(text)));
    }
}
JAVA
cat > try.py <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a café cafe 日 本 語 hyphen soft ##hyphen ##width zero".split()
TEXTS = ["a cafe", "a café", "日本語", "日本語 a", "zero\u200bwidth", "soft\u00adhyphen"]
Path("words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
Path("texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
differ = []
for n, lower in enumerate((False, True)):
    original = BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=lower)
    for text, found in zip(TEXTS, lines[n * len(TEXTS) :], strict=False):
        wanted = original.encode(text, add_special_tokens=False).tokens
        differ.append(found.split() != wanted)
        print(f"lowerCase={lower} {text!a} tokenizers {wanted} DJL {found.split()}")
sys.exit(differ != [False, True, True, True, True, True] + [False, False, True, True, True, True])
PYTHON
env/bin/python try.py
