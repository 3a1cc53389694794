#!/usr/bin/env bash
# dev.langchain4j:langchain4j-embeddings 1.19.0-beta29 (OnnxEmbeddingModel), Java 17, beside tokenizers 0.23.3 and onnx
# 1.23.2 (PyPI).
#
# Guess: "many models can be used, as long as they are in the ONNX format": the encoder gets what tokenizer.json says.
# Seen: it cuts a text, joins the entries' names and cuts that again. Of byte-level BPE, as RoBERTa's family has it,
#   names are not the text: "Ġ" before a word becomes two bytes of its own, a letter beyond ASCII several. The encoder
#   gets other entries for each text of two words. Unigram is right, as WordPiece is.
# What follows: vectors of such encoders are wrong without a word: cosines of 0.2 to 0.6 below. Run the graph by
#   ai.onnxruntime and ai.djl.huggingface.tokenizers instead.
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
    <dependency><groupId>dev.langchain4j</groupId><artifactId>langchain4j-embeddings</artifactId>
      <version>1.19.0-beta29</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import dev.langchain4j.model.embedding.onnx.OnnxEmbeddingModel;
import dev.langchain4j.model.embedding.onnx.PoolingMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

public class Try {
    public static void main(String[] given) throws Exception {
        for (String kind : given) {
            var model = new OnnxEmbeddingModel(Path.of("model.onnx"), Path.of(kind + ".json"), PoolingMode.MEAN);
            for (String text : Files.readAllLines(Path.of("texts.txt")))
                System.out.println(Arrays.toString(model.embed(text).content().vector()));
        }
    }
}
JAVA
cat > try.py <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ENTRIES = 320
TEXTS = ["the", "the dog", "The quick brown fox jumps.", "les élèves"]
SENTENCE = "The quick brown fox jumps over the lazy dog. les élèves étaient à l'école"

# The vector of an entry is one at its number, so that the mean of a text counts its entries.
names = ["input_ids", "attention_mask"]
graph = helper.make_graph(
    [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
    "counts",
    [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names],
    [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", ENTRIES])],
    [numpy_helper.from_array(np.eye(ENTRIES, dtype=np.float32), "table")],
)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
Path("texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")

special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
pairs = Tokenizer(models.BPE())
pairs.pre_tokenizer, pairs.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(
    vocab_size=ENTRIES, special_tokens=special, initial_alphabet=alphabet, show_progress=False
)
pairs.train_from_iterator([SENTENCE] * 50, trainer)
words = Tokenizer(models.Unigram())
words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False)
words.train_from_iterator([SENTENCE] * 50, trainer)
tokenizers = {"bpe": pairs, "unigram": words}
for kind, tokenizer in tokenizers.items():
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(f"{kind}.json")
command = ["java", "-Dfile.encoding=UTF-8", "-cp", "lib/*", "Try.java", *tokenizers]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
vectors = iter(run.stdout.splitlines())
wrong: dict[str, list[str]] = {}
for kind, tokenizer in tokenizers.items():
    wrong[kind] = []
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        wanted = np.bincount(encoded.ids, minlength=ENTRIES).astype(float)
        found = np.array(json.loads(next(vectors)))
        cosine = float(wanted @ found / np.linalg.norm(wanted) / np.linalg.norm(found))
        seen = [tokenizer.id_to_token(n) for n in np.flatnonzero(found > 1e-6)]
        print(f"{kind} {text!r} cosine {cosine:.3f} wanted {encoded.tokens} seen {seen}")
        if cosine < 0.999:
            wrong[kind].append(text)
sys.exit(wrong != {"bpe": TEXTS[1:], "unigram": []})
PYTHON
env/bin/python try.py
