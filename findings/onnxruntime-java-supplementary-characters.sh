#!/usr/bin/env bash
# com.microsoft.onnxruntime:onnxruntime 1.29.0 (Java 17), beside onnxruntime 1.31.1 (PyPI); onnx 1.23.2.
#
# Guess: a tensor of strings gives a graph the UTF-8 of Java's strings, and Java the strings of the graph, as in Python.
# Seen: both ways take the JVM's modified UTF-8. A character beyond U+FFFF (emoji, rare Chinese characters, mathematical
#   letters) goes in as two surrogates of three bytes each, which is no UTF-8; coming out it is "ð" and unprintable
#   characters, and in Chinese text what follows it is eaten. Nothing is raised; other characters are right.
# What follows: graphs that have their tokenizer or vocabulary inside read such words as unknown in Java alone, and
#   labels with emoji are broken. Tokenize outside the graph and hand over ids.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.31.1
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>com.microsoft.onnxruntime</groupId><artifactId>onnxruntime</artifactId>
      <version>1.29.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

public class Try {
    public static void main(String[] given) throws Exception {
        var environment = OrtEnvironment.getEnvironment();
        var session = environment.createSession("words.onnx");
        String[] words = Files.readAllLines(Path.of("words.txt")).toArray(new String[0]);
        long[] numbers = new long[words.length];
        for (int n = 0; n < words.length; n++)
            numbers[n] = n + 1;
        try (var result = session.run(Map.of(
                "words", OnnxTensor.createTensor(environment, words),
                "numbers", OnnxTensor.createTensor(environment, numbers)))) {
            long[] ids = (long[]) result.get("ids").get().getValue();
            String[] names = (String[]) result.get("names").get().getValue();
            for (int n = 0; n < words.length; n++)
                System.out.println(ids[n] + " " + names[n]);
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import onnxruntime
from onnx import TensorProto, helper, save

SAME = ["hello", "é", "日本", "…"]
OTHER = ["😀", "so 😀", "𠮷野家", "𝐀𝐁"]
WORDS = SAME + OTHER
NUMBERS = list(range(1, len(WORDS) + 1))

# A vocabulary and its inverse, as a graph with a tokenizer inside has them.
graph = helper.make_graph(
    [
        helper.make_node("LabelEncoder", ["words"], ["ids"], domain="ai.onnx.ml", keys_strings=WORDS,
                         values_int64s=NUMBERS, default_int64=0),
        helper.make_node("LabelEncoder", ["numbers"], ["names"], domain="ai.onnx.ml", keys_int64s=NUMBERS,
                         values_strings=WORDS, default_string="none"),
    ],
    "words",
    [helper.make_tensor_value_info("words", TensorProto.STRING, ["n"]),
     helper.make_tensor_value_info("numbers", TensorProto.INT64, ["n"])],
    [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
     helper.make_tensor_value_info("names", TensorProto.STRING, ["n"])],
)
sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
save(helper.make_model(graph, opset_imports=sets, ir_version=9), "words.onnx")
Path("words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
ids, names = onnxruntime.InferenceSession("words.onnx").run(None, {"words": WORDS, "numbers": NUMBERS})
assert ids.tolist() == NUMBERS and names.tolist() == WORDS
command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
lines = run.stdout.decode("utf-8").split("\n")[: len(WORDS)]
seen = [line.split(" ", 1) for line in lines]
for word, number, (found, name) in zip(WORDS, NUMBERS, seen, strict=True):
    print(f"{word}: Python {number} {word} | Java {found} {name!r}")
into = [word for word, number, (found, _) in zip(WORDS, NUMBERS, seen, strict=True) if found != str(number)]
out = [word for word, (_, name) in zip(WORDS, seen, strict=True) if name != word]
sys.exit(into != OTHER or out != OTHER or any(found != "0" for found, _ in seen[len(SAME):]))
PYTHON
env/bin/python try.py
