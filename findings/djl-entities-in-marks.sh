#!/usr/bin/env bash
# ai.djl.huggingface:tokenizers 0.36.0 (TokenClassificationTranslator) with DJL's onnxruntime and PyTorch engines, Java
# 17; tokenizers 0.23.3 and onnx 1.23.2 (PyPI) make the model.
#
# Guess: aggregation_strategy first, average and max join the pieces of a word ("Lon ##don"), as in transformers, where
#   "##" tells what is a piece.
# Seen: whatever has no blank (U+0020) before it is taken for a piece of what stands before. With "first" a name in
#   brackets or quotes, or after a line's end, has the label of the mark or word before it, "O", and is lost; a comma
#   after a name becomes part of it. With "average" and "max" a name before a comma is lost as well. "simple" and no
#   strategy are right. No warning.
# What follows: the options that are meant to help lose most names of prose. Take "simple".
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
import ai.djl.huggingface.translator.TokenClassificationTranslator;
import ai.djl.modality.nlp.translator.NamedEntity;
import ai.djl.repository.zoo.Criteria;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

public class Try {
    static final String[] TEXTS = {"in London two", "in (London) two", "one 'London' two", "one\nLondon two",
        "in London, two"};

    static List<String> names(HuggingFaceTokenizer tokenizer, String strategy) throws Exception {
        var translator = TokenClassificationTranslator.builder(tokenizer, Map.of("aggregation_strategy", strategy));
        var criteria = Criteria.builder().setTypes(String.class, NamedEntity[].class).optModelPath(Path.of("names"))
            .optModelName("model.onnx").optEngine("OnnxRuntime").optTranslator(translator.build()).build();
        List<String> found = new ArrayList<>();
        try (var model = criteria.loadModel(); var predictor = model.newPredictor()) {
            for (String text : TEXTS) {
                var names = new ArrayList<String>();
                for (var name : predictor.predict(text))
                    names.add(text.substring(name.getStart(), name.getEnd()));
                found.add(String.join(" ", names));
            }
        }
        System.out.println(strategy + " " + found);
        return found;
    }

    public static void main(String[] given) throws Exception {
        var tokenizer = HuggingFaceTokenizer.newInstance(Path.of("tokenizer.json"));
        var right = List.of("London", "London", "London", "London", "London");
        boolean asSeen = names(tokenizer, "simple").equals(right)
            && names(tokenizer, "first").equals(List.of("London", "", "", "", "London,"))
            && names(tokenizer, "average").equals(List.of("London", "", "", "", ""))
            && names(tokenizer, "max").equals(List.of("London", "", "", "", ""));
        System.exit(asSeen ? 0 : 1);
    }
}
JAVA
env/bin/python - <<'PYTHON'
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from tokenizers import BertWordPieceTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] one two in Lon ##don ( ) ' ,".split()
BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=False).save("tokenizer.json")
# A tagger that knows both pieces of the name, and is a little more sure of all others.
table = np.zeros((len(WORDS), 3), np.float32)
table[:, 0] = 6
table[WORDS.index("Lon")] = 0, 4, 0
table[WORDS.index("##don")] = 0, 0, 4
graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["logits"])],
    "names",
    [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "l"]) for n in ("input_ids", "attention_mask")],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "l", 3])],
    [numpy_helper.from_array(table, "table")],
)
folder = Path("names")
folder.mkdir()
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
save(model, folder / "model.onnx")
(folder / "config.json").write_text(json.dumps({"id2label": {"0": "O", "1": "B-LOC", "2": "I-LOC"}}))
PYTHON
export DJL_CACHE_DIR="$place/cache" OPT_OUT_TRACKING=true
java -Dfile.encoding=UTF-8 -cp "lib/*" Try.java 2> log || { cat log; exit 1; }
