#!/usr/bin/env bash
# ai.djl.huggingface:tokenizers 0.36.0 (QuestionAnsweringTranslator) with DJL's onnxruntime and PyTorch engines, Java
# 17; tokenizers 0.23.3 and onnx 1.23.2 (PyPI) make the model.
#
# Guess: the answer is the span whose logits of start and end have the largest sum, as in BERT's own evaluation and in
#   transformers: an end before its start is no span.
# Seen: the best start and the best end are taken by themselves, and changed for each other where the end comes first. A
#   model that starts best at "three" and ends best at "one", with "three London" the best span, answers "one two
#   three": the start that it gave is the end. Where both fit, it is right.
# What follows: where a model is of two minds, the answer is a span that it gave neither start nor end of. Take the best
#   pair from the logits yourself.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3 onnx==1.23.2
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>ai.djl.huggingface</groupId><artifactId>tokenizers</artifactId><version>0.36.0</version>
    </dependency>
    <dependency><groupId>ai.djl.onnxruntime</groupId><artifactId>onnxruntime-engine</artifactId>
      <version>0.36.0</version></dependency>
    <dependency><groupId>ai.djl.pytorch</groupId><artifactId>pytorch-engine</artifactId><version>0.36.0</version>
    </dependency>
    <dependency><groupId>ai.djl.pytorch</groupId><artifactId>pytorch-jni</artifactId><version>2.7.1-0.36.0</version>
    </dependency>
    <dependency><groupId>ai.djl.pytorch</groupId><artifactId>pytorch-native-cpu</artifactId><version>2.7.1</version>
      <classifier>linux-x86_64</classifier></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer;
import ai.djl.huggingface.translator.QuestionAnsweringTranslator;
import ai.djl.modality.nlp.qa.QAInput;
import ai.djl.repository.zoo.Criteria;
import java.nio.file.Files;
import java.nio.file.Path;

public class Try {
    public static void main(String[] given) throws Exception {
        var tokenizer = HuggingFaceTokenizer.newInstance(Path.of("tokenizer.json"));
        var criteria = Criteria.builder().setTypes(QAInput.class, String.class).optModelPath(Path.of("answers.onnx"))
            .optEngine("OnnxRuntime").optTranslator(QuestionAnsweringTranslator.builder(tokenizer).build()).build();
        try (var model = criteria.loadModel(); var predictor = model.newPredictor()) {
            for (String text : Files.readAllLines(Path.of("texts.txt")))
                System.out.println(predictor.predict(new QAInput("who ran", text)));
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] who ran one two three London".split()
TEXTS = ["three two London", "one two three London"]
STARTS, ENDS = {"three": 9, "one": 6}, {"one": 8, "London": 7}


def best(words: list[str]) -> str:
    """Give the span with the largest sum of logits."""
    pairs = [(first, last) for first in range(len(words)) for last in range(first, len(words))]
    first, last = max(pairs, key=lambda pair: STARTS.get(words[pair[0]], 0) + ENDS.get(words[pair[1]], 0))
    return " ".join(words[first : last + 1])


BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=False).save("tokenizer.json")
logits = {"starts": STARTS, "ends": ENDS}
graph = helper.make_graph(
    [helper.make_node("Gather", [f"{name}_table", "input_ids"], [name]) for name in logits],
    "answers",
    [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "l"]) for n in ("input_ids", "attention_mask")],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "l"]) for name in logits],
    [numpy_helper.from_array(np.array([of.get(word, 0) for word in WORDS], np.float32), f"{name}_table")
     for name, of in logits.items()],
)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "answers.onnx")
Path("texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
environment = os.environ | {"DJL_CACHE_DIR": os.getcwd() + "/cache", "OPT_OUT_TRACKING": "true"}
run = subprocess.run(command, capture_output=True, text=True, env=environment)
wanted = [best(text.split()) for text in TEXTS]
print("best", wanted, "DJL", run.stdout.splitlines(), run.stderr[-500:] if run.returncode else "")
right = wanted == ["three two London", "three London"]
sys.exit(not (right and run.stdout.splitlines() == ["three two London", "one two three"]))
PYTHON
env/bin/python try.py
