#!/usr/bin/env bash
# com.mayabot.mynlp:fastText4j 3.1.0 (FastText.loadCppModel), Java 17, beside fasttext-wheel 0.9.2 (PyPI).
#
# Guess: of a classifier that fastText has trained and saved it gives fastText's labels and probabilities.
# Seen: so it is with wordNgrams=1, also with pieces of words. With wordNgrams=2, as filters of text quality and
#   languages have it, most pairs of words are looked up in other places of the table than they were trained at. Where
#   the pairs decide, the labels are those of chance; where words do, only the numbers differ. No error.
# What follows: texts are kept and dropped by noise. Use models of single words there, or fastText itself.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check fasttext-wheel==0.9.2 numpy==2.4.6
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>com.mayabot.mynlp</groupId><artifactId>fastText4j</artifactId><version>3.1.0</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import com.mayabot.nlp.fasttext.FastText;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

public class Try {
    public static void main(String[] given) throws Exception {
        for (String name : given) {
            var model = FastText.Companion.loadCppModel(new File(name));
            for (String text : Files.readAllLines(Path.of("texts.txt"))) {
                var best = model.predict(List.of(text.split(" ")), 1, 0f).get(0);
                System.out.println(name + " " + best.getLabel() + " " + best.getScore());
            }
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import fasttext

WORDS = "the cat dog ran sat home école red".split()
# The order of two words decides on the class, or the words "red" and "cat" do.
PAIRS = [" ".join(pair) for pair in permutations(WORDS, 2)]
CLASSES = {
    "pairs": {text: "kept" if text.split() == sorted(text.split()) else "dropped" for text in PAIRS},
    "words": {text: "kept" if "red" in text.split() else "dropped" for text in PAIRS},
}
OPTIONS = {
    "words": {"wordNgrams": 1},
    "words.pieces": {"wordNgrams": 1, "minn": 2, "maxn": 3},
    "pairs": {"wordNgrams": 2},
}
Path("texts.txt").write_text("\n".join(PAIRS) + "\n", encoding="utf-8")
wanted = []
for name, options in OPTIONS.items():
    classes = CLASSES[name.partition(".")[0]]
    rows = [f"__label__{label} {text}\n" for text, label in classes.items()] * 20
    Path("rows.txt").write_text("".join(rows), encoding="utf-8")
    model = fasttext.train_supervised(
        "rows.txt", dim=16, epoch=25, lr=0.5, bucket=20_000, thread=1, seed=0, verbose=0, **options
    )
    model.save_model(f"{name}.bin")
    for text, label in classes.items():
        [(score, best)] = model.f.predict(f"{text}\n", 1, 0.0, "strict")
        wanted.append((f"{name}.bin", best, score))
        assert best == f"__label__{label}", text
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java", *(f"{name}.bin" for name in OPTIONS)]
lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
found = [(name, label, float(score)) for name, label, score in (line.split() for line in lines)]
as_seen = True
for name in OPTIONS:
    both = [(one, two) for one, two in zip(wanted, found, strict=True) if one[0] == f"{name}.bin"]
    labels = sum(one[1] == two[1] for one, two in both)
    scores = sum(abs(one[2] - two[2]) < 1e-3 for one, two in both)
    print(f"{name}: of {len(both)} texts {labels} have fastText's label, {scores} its score")
    right = labels == scores == len(both)
    as_seen &= right if name != "pairs" else labels < 0.8 * len(both) and scores < 0.6 * len(both)
sys.exit(not as_seen)
PYTHON
env/bin/python try.py
