#!/usr/bin/env bash
# com.yahoo.vespa:linguistics-components 8.700.24 (SentencePieceEmbedder), Java 17, beside sentencepiece 0.2.1 (PyPI).
#
# Guess: it opens a model of SentencePiece and gives its ids, for Unigram and for BPE.
# Seen: the normalization that the model carries (nmt_nfkc, the default) is not done: "…", "ﬁ", "½", full-width letters,
#   no-break spaces and decomposed accents are <unk>. Of BPE models other pieces are merged too: "hello" is "h ello",
#   not "he l lo". Unigram on plain text is right.
# What follows: normalize texts by NFKC before, and leave BPE models to the Hugging Face embedder.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check sentencepiece==0.2.1
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
import com.yahoo.language.sentencepiece.SentencePieceEmbedder;
import java.nio.file.Files;
import java.nio.file.Path;

public class Try {
    public static void main(String[] given) throws Exception {
        for (String kind : given) {
            var embedder = new SentencePieceEmbedder.Builder(kind + ".model").build();
            for (String text : Files.readAllLines(Path.of("texts.txt")))
                System.out.println(embedder.embed(text, new Embedder.Context("try")));
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

import sentencepiece

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. Two cats ran home at 10 o'clock! Hello, World: the "
    "internationalization of tokenization (and others) is unaffordable.",
    "Die Grenzen meiner Sprache bedeuten die Grenzen meiner Welt.",
    "les élèves étaient à l'école",
]
SAME = ["The quick brown fox", " the  dog ", "Hello, World!"]
MERGED = ["les élèves", "hello world"]
NORMALIZED = ["the dog…", "ﬁx the dog", "the\u00a0dog", "les e\u0301le\u0300ves"]
Path("train.txt").write_text("\n".join(SENTENCES * 50) + "\n", encoding="utf-8")
Path("texts.txt").write_text("\n".join([*SAME, *NORMALIZED, *MERGED]) + "\n", encoding="utf-8")
for kind in ("unigram", "bpe"):
    sentencepiece.SentencePieceTrainer.train(
        input="train.txt", model_prefix=kind, model_type=kind, vocab_size=160, hard_vocab_limit=False, minloglevel=2
    )
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java", "unigram", "bpe"]
lines = iter(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines())
differ: dict[str, list[str]] = {}
for kind in ("unigram", "bpe"):
    model = sentencepiece.SentencePieceProcessor(model_file=f"{kind}.model")
    differ[kind] = []
    for text in [*SAME, *NORMALIZED, *MERGED]:
        wanted, found = model.encode(text), json.loads(next(lines))
        if wanted != found:
            differ[kind].append(text)
            pieces = [" ".join(model.id_to_piece(ids)) for ids in (wanted, found)]
            print(f"{kind} {text!r} sentencepiece {pieces[0]} | Vespa {pieces[1]}")
sys.exit(differ != {"unigram": NORMALIZED, "bpe": [*NORMALIZED, *MERGED]})
PYTHON
env/bin/python try.py
