#!/usr/bin/env bash
# ai.djl.huggingface:tokenizers 0.36.0 (FillMaskTranslator) with DJL's onnxruntime and PyTorch engines, Java 17, beside
# tokenizers 0.23.3 and onnx 1.23.2 (PyPI).
#
# Guess: the words for a mask are the entries of the highest logits, each with its probability, as in transformers.
# Seen: it decodes the best entries as one text and cuts that at blanks. A piece is glued to the word before it, and
#   from there on each word has the probability of the one before: of "dog", "##s", "cat" and "the" with 0.62, 0.23,
#   0.08 and 0.03 it makes "dogs" 0.62, "cat" 0.23 and "the" 0.08.
# What follows: words that the model did not give, and probabilities of others, wherever a piece is among the best.
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
import ai.djl.huggingface.translator.FillMaskTranslator;
import ai.djl.modality.Classifications;
import ai.djl.repository.zoo.Criteria;
import java.nio.file.Path;

public class Try {
    public static void main(String[] given) throws Exception {
        var tokenizer = HuggingFaceTokenizer.newInstance(Path.of("tokenizer.json"));
        var criteria = Criteria.builder().setTypes(String.class, Classifications.class)
            .optModelPath(Path.of("model.onnx")).optEngine("OnnxRuntime")
            .optTranslator(FillMaskTranslator.builder(tokenizer).optTopK(4).build()).build();
        try (var model = criteria.loadModel(); var predictor = model.newPredictor()) {
            var found = predictor.predict("the [MASK] ran.");
            for (int n = 0; n < found.getClassNames().size(); n++)
                System.out.printf("%s %.2f%n", found.getClassNames().get(n), found.getProbabilities().get(n));
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import os
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the dog ##s cat ran .".split()
tokenizer = BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=True)
tokenizer.add_special_tokens(WORDS[:5])
tokenizer.save("tokenizer.json")
# The logits of an entry are its row: of the mask "dog" 5, "##s" 4, "cat" 3, "the" 2 and others 0.
table = np.zeros((len(WORDS), len(WORDS)), np.float32)
table[4, [6, 7, 8, 5]] = 5, 4, 3, 2
graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["logits"])],
    "words",
    [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "l"]) for n in ("input_ids", "attention_mask")],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "l", len(WORDS)])],
    [numpy_helper.from_array(table, "table")],
)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
shares = np.exp(table[4]) / np.exp(table[4]).sum()
wanted = [f"{WORDS[n]} {shares[n]:.2f}" for n in np.argsort(-shares)[:4]]
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java"]
environment = os.environ | {"DJL_CACHE_DIR": os.getcwd() + "/cache"}
run = subprocess.run(command, capture_output=True, text=True, env=environment)
print("wanted", wanted, "seen", run.stdout.splitlines(), run.stderr[-500:] if run.returncode else "")
right = wanted == ["dog 0.62", "##s 0.23", "cat 0.08", "the 0.03"]
sys.exit(not (right and run.stdout.splitlines() == ["dogs 0.62", "cat 0.23", "the 0.08"]))
PYTHON
env/bin/python try.py
