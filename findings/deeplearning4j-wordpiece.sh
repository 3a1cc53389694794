#!/usr/bin/env bash
# org.deeplearning4j:deeplearning4j-nlp 1.0.0-M2.1 (BertWordPieceTokenizerFactory), Java 17, beside tokenizers 0.23.3
# (PyPI).
#
# Guess: with the vocabulary of an uncased BERT it makes BERT's tokens, and [UNK] of a word that it cannot build.
# Seen: of a word the pieces that can be built are given, and the rest of it is left out: "hellox" is "hello", and a
#   word without any piece is nothing; [UNK] is never made. With a cased vocabulary the same is an error where the rest
#   is in capitals ("HELLO"), and silent where it is not. Known words, marks, accents and Chinese are right.
# What follows: texts that differ have the same tokens, and words stand beside others than in training. Open
#   tokenizer.json by ai.djl.huggingface.tokenizers instead.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
# Its 800 MB of other dependencies (images, video, linear algebra) have no part in the tokenizer.
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.deeplearning4j</groupId><artifactId>deeplearning4j-nlp</artifactId>
      <version>1.0.0-M2.1</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
    <dependency><groupId>org.nd4j</groupId><artifactId>nd4j-common</artifactId><version>1.0.0-M2.1</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
    <dependency><groupId>it.unimi.dsi</groupId><artifactId>fastutil</artifactId><version>6.5.7</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.21</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.deeplearning4j.text.tokenization.tokenizerfactory.BertWordPieceTokenizerFactory;

public class Try {
    public static void main(String[] given) throws Exception {
        boolean lower = given[0].equals("lower");
        var factory = new BertWordPieceTokenizerFactory(new File("vocab.txt"), lower, lower, StandardCharsets.UTF_8);
        for (String text : Files.readAllLines(Path.of("texts.txt"))) {
            try {
                System.out.println(String.join(" ", factory.create(text).getTokens()));
            } catch (IllegalStateException error) {
                System.out.println("error");
            }
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a hello hel ##lo word ##s Hello été ete 日 本 “ ” , . ? 3".split()
SAME = ["hello, words.", "“hello” words?", "日本 a", "été a 3"]
OTHER = ["hellox a", "a zzz hello", "a helxyz word"]
Path("vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")


def differ(kind: str, texts: list[str]) -> list[tuple[str, str]]:
    """Give the texts that have other tokens, with those of DL4J."""
    Path("texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", "lib/*", "Try.java", kind]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode("utf-8").split("\n")
    lower = kind == "lower"
    vocabulary = {word: n for n, word in enumerate(WORDS)}
    original = BertWordPieceTokenizer(vocabulary, lowercase=lower, strip_accents=lower)
    found = []
    for text, line in zip(texts, lines[: len(texts)], strict=True):
        wanted = " ".join(original.encode(text, add_special_tokens=False).tokens)
        print(f"{kind} {text!r}: tokenizers {wanted!r}, DL4J {line!r}")
        if wanted != line:
            found.append((text, line))
    return found


silent = list(zip(OTHER, ["hello a", "a hello", "a hel word"], strict=True))
uncased = differ("lower", SAME + OTHER + ["HELLO Words"])
cased = differ("cased", SAME + OTHER + ["Hello a", "HELLO a"])
sys.exit(uncased != silent or cased != [*silent, ("HELLO a", "error")])
PYTHON
env/bin/python try.py
