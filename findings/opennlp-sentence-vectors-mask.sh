#!/usr/bin/env bash
# org.apache.opennlp:opennlp-dl 2.4.0 (SentenceVectorsDL), Java 17; onnx 1.23.2 (PyPI) makes the model.
#
# Guess: of "a sentence-transformers model converted to ONNX" it gives a sentence's vector: attention_mask is 1 and
#   token_type_ids 0 for each entry, as when the model was trained.
# Seen: the mask is 0 for all entries and the types are 1. A BERT then attends to all alike, whatever its heads have
#   learned, in the segment of a second sentence. The vector is that of the first entry, [CLS]; nothing is averaged.
#   DocumentCategorizerDL and NameFinderDL of the same package give 1 and 0.
# What follows: no vector fits those of sentence-transformers, and none is refused. Run the graph by ai.onnxruntime.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2
env/bin/python - <<'PYTHON'
from pathlib import Path

from onnx import TensorProto, helper, save

# The vector of an entry is its id, its mask and its type.
names = ["input_ids", "attention_mask", "token_type_ids"]
nodes = [helper.make_node("Unsqueeze", [name, "axis"], [f"{name}_3d"]) for name in names]
nodes += [
    helper.make_node("Concat", [f"{name}_3d" for name in names], ["whole"], axis=2),
    helper.make_node("Cast", ["whole"], ["last_hidden_state"], to=TensorProto.FLOAT),
]
graph = helper.make_graph(
    nodes,
    "shown",
    [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in names],
    [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "l", 3])],
    [helper.make_tensor("axis", TensorProto.INT64, [1], [2])],
)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
words = "[PAD] [UNK] [CLS] [SEP] [MASK] one two three".split()
Path("vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
PYTHON
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.opennlp</groupId><artifactId>opennlp-dl</artifactId><version>2.4.0</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.13</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import java.io.File;
import java.util.Arrays;
import opennlp.dl.vectors.SentenceVectorsDL;

public class Try {
    public static void main(String[] given) throws Exception {
        var vectors = new SentenceVectorsDL(new File("model.onnx"), new File("vocab.txt"));
        boolean asSeen = true;
        for (String text : new String[] {"one two three", "three", "two two"}) {
            float[] found = vectors.getVectors(text);
            System.out.println(text + ": id, mask, type of the vector " + Arrays.toString(found));
            asSeen &= Arrays.equals(found, new float[] {2, 0, 1});
        }
        System.exit(asSeen ? 0 : 1);
    }
}
JAVA
java -cp "lib/*" Try.java
