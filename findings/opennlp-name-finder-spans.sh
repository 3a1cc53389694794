#!/usr/bin/env bash
# org.apache.opennlp:opennlp-dl 2.4.0 (NameFinderDL), Java 17; onnx 1.23.2 (PyPI) makes the model.
#
# Guess: each name that the model tags B-PER, I-PER is found once, at its place in the text.
# Seen: its entries are put together with blanks and looked up in the text. Names with an apostrophe or a hyphen
#   ("Jean-Luc", "O'Neill") are written otherwise there and are left out, without a word. Others get the place where
#   these letters come first: "John" is found within "Johnson"; each sentence starts anew at the text's beginning, so
#   that a name in the second is given the place of the first, twice.
# What follows: many names are lost, and redacted texts keep names that the model has tagged. Take the offsets of
#   ai.djl.huggingface.tokenizers and the graph's tags.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2 numpy==2.4.6
env/bin/python - <<'PYTHON'
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

# A tagger without error for the texts below: "O", "B-PER" or "I-PER" by the entry.
TAGS = {"John": 1, "Jean": 1, "O": 1, "May": 1, "-": 2, "'": 2, "Smith": 2, "Luc": 2, "Neill": 2}
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] . met ran sat Johnson today".split() + list(TAGS)
tags = np.zeros((len(WORDS), 3), np.float32)
for n, word in enumerate(WORDS):
    tags[n, TAGS.get(word, 0)] = 9
names = ["input_ids", "attention_mask", "token_type_ids"]
graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["logits"])],
    "tags",
    [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in names],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "l", 3])],
    [numpy_helper.from_array(tags, "table")],
)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
Path("vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
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
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.StringJoiner;
import opennlp.dl.namefinder.NameFinderDL;
import opennlp.tools.sentdetect.SentenceDetector;
import opennlp.tools.util.Span;

public class Try {
    /** Ends a sentence after each full stop. */
    static final SentenceDetector SENTENCES = new SentenceDetector() {
        @Override
        public String[] sentDetect(CharSequence text) {
            return text.toString().split("(?<=[.]) ");
        }

        @Override
        public Span[] sentPosDetect(CharSequence text) {
            throw new UnsupportedOperationException();
        }
    };

    public static void main(String[] given) throws Exception {
        var finder = new NameFinderDL(new File("model.onnx"), new File("vocab.txt"),
                Map.of(0, "O", 1, "B-PER", 2, "I-PER"), SENTENCES);
        Map<String, String> seen = new LinkedHashMap<>();
        seen.put("today John Smith ran .", "John Smith 6");
        seen.put("John met May .", "John 0, May 9");
        seen.put("Jean-Luc met John .", "John 13");
        seen.put("today O'Neill ran .", "");
        seen.put("Johnson met John .", "John 0");
        seen.put("John ran . John sat .", "John 0, John 0");
        boolean asSeen = true;
        for (var each : seen.entrySet()) {
            var found = new StringJoiner(", ");
            for (Span span : finder.find(each.getKey().split(" ")))
                found.add(each.getKey().substring(span.getStart(), span.getEnd()) + " " + span.getStart());
            System.out.println(each.getKey() + " found: " + found);
            asSeen &= each.getValue().equals(found.toString());
        }
        System.exit(asSeen ? 0 : 1);
    }
}
JAVA
java -cp "lib/*" Try.java
