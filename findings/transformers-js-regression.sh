#!/usr/bin/env bash
# transformers.js 4.3.2 (npm @huggingface/transformers), onnx 1.23.2; Node 20.
# Guess: as transformers in Python, the text-classification pipeline gives a model of `problem_type: regression` with
#   one output its score.
# Seen: it takes the softmax over the one output, so that each text has score 1; the model's logits are right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet onnx==1.23.2
npm install --silent --ignore-scripts --no-audit --no-fund @huggingface/transformers@4.3.2
mkdir -p models/sum/onnx
env/bin/python - <<'PYTHON'
import json
from pathlib import Path

from onnx import TensorProto, helper, save

folder = Path("models/sum")
ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in ("input_ids", "attention_mask")]
nodes = [
    helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
    helper.make_node("ReduceSum", ["numbers", "axis"], ["logits"], keepdims=1),
]
axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 1])
graph = helper.make_graph(nodes, "sum", ids, [logits], [axis])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "onnx/model.onnx")
config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "problem_type": "regression"}
(folder / "config.json").write_text(json.dumps(config | {"id2label": {"0": "score"}, "label2id": {"score": 0}}))
words = {"[PAD]": 0, "[UNK]": 1, "two": 2, "three": 3}
padding = [{"id": 0, "content": "[PAD]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}]
(folder / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": padding, "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
}))
settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
(folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 64}))
PYTHON
cat > run.mjs <<'NODE'
import {env, pipeline} from "@huggingface/transformers";
env.allowRemoteModels = false;
env.localModelPath = "models";
const judge = await pipeline("text-classification", "sum", {dtype: "fp32"});
const texts = ["two", "three three"];
const logits = (await judge.model(judge.tokenizer(texts, {padding: true}))).logits.tolist();
const scores = (await judge(texts)).map(each => each.score);
console.log("logits", JSON.stringify(logits), "scores of the pipeline", JSON.stringify(scores));
process.exit(JSON.stringify(logits) === "[[2],[6]]" && scores.every(each => each === 1) ? 0 : 1);
NODE
node run.mjs
