#!/usr/bin/env bash
# transformers.js 4.3.2 (npm @huggingface/transformers), transformers 5.24.0, onnx 1.23.2; Node 20.
# Guess: `token_type_ids` in `model_input_names` and the types in tokenizer.json's template decide on the segments of a
#   pair, as in Python, whatever tokenizer_class says.
# Seen: only classes such as BertTokenizer make segments. A PreTrainedTokenizerFast, which Python saves for any BERT whose
#   words are cut otherwise, makes none, and the model is fed zeros without a word: question-answering and pairs are read
#   as one segment.
# What follows: set tokenizer.return_token_type_ids = true, or give the call return_token_type_ids: true.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2 transformers==5.24.0
npm install --silent --ignore-scripts --no-audit --no-fund @huggingface/transformers@4.3.2
cat > make.py <<'PYTHON'
import json
from pathlib import Path

from onnx import TensorProto, helper, save
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

inputs = ["input_ids", "token_type_ids", "attention_mask"]
values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in inputs]
nodes = [
    helper.make_node("Cast", ["token_type_ids"], ["numbers"], to=TensorProto.FLOAT),
    helper.make_node("ReduceSum", ["numbers", "axis"], ["logits"], keepdims=1),
]
axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 1])
graph = helper.make_graph(nodes, "segments", values, [logits], [axis])
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
words = {word: number for number, word in enumerate([*special, "a", "b"])}
made = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
made.add_special_tokens(special)
made.post_processor = processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
for name in ("BertTokenizer", "PreTrainedTokenizerFast"):
    folder = Path("models", name)
    (folder / "onnx").mkdir(parents=True)
    opset = [helper.make_opsetid("", 18)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "onnx" / "model.onnx")
    kind = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(kind))
    made.save(str(folder / "tokenizer.json"))
    roles = {f"{one[1:-1].lower()}_token": one for one in special}
    settings = {"tokenizer_class": name, "model_input_names": inputs, "model_max_length": 64} | roles
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    print("Python", name, sum(AutoTokenizer.from_pretrained(folder)("a", "a b")["token_type_ids"]))
PYTHON
env/bin/python make.py 2> errors || { cat errors; exit 1; }
cat > run.mjs <<'NODE'
import {AutoModelForSequenceClassification, AutoTokenizer, env} from "@huggingface/transformers";
env.allowRemoteModels = false;
env.localModelPath = "models";
const found = [];
for (const [name, options] of [
  ["BertTokenizer", {}], ["PreTrainedTokenizerFast", {}], ["PreTrainedTokenizerFast", {return_token_type_ids: true}],
]) {
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  const model = await AutoModelForSequenceClassification.from_pretrained(name, {dtype: "fp32"});
  const {logits} = await model(tokenizer("a", {text_pair: "a b", ...options}));
  found.push(logits.data[0]);
  console.log("Node", name, JSON.stringify(options), logits.data[0], "entries of the second segment");
}
process.exit(JSON.stringify(found) === "[3,0,3]" ? 0 : 1);
NODE
node run.mjs
