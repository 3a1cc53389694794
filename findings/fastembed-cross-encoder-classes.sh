#!/usr/bin/env bash
# fastembed 0.9.1 (TextCrossEncoder.add_custom_model), onnxruntime 1.32.0, onnx 1.23.2, tokenizers 0.23.3.
# Guess: a cross-encoder of two classes, "irrelevant" and "relevant" as MonoBERT's, ranks by the second class, as
#   id2label says, or is refused.
# Seen: rerank gives the logit of the first class, that of "irrelevant", so that the best document comes last.
# What follows: give it models of one score alone.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check \
    fastembed==0.9.1 onnxruntime==1.32.0 onnx==1.23.2 tokenizers==0.23.3
cat > try.py <<'PYTHON'
import json
import sys
from pathlib import Path

import numpy as np
from fastembed.common.model_description import ModelSource
from fastembed.rerank.cross_encoder import TextCrossEncoder
from onnx import TensorProto, helper, numpy_helper, save
from tokenizers import Tokenizer, models, pre_tokenizers, processors

folder = Path("judge")
(folder / "onnx").mkdir(parents=True)
# The more entries a pair has that are "yes", the more relevant it is.
inputs = ["input_ids", "attention_mask", "token_type_ids"]
values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in inputs]
nodes = [
    helper.make_node("Equal", ["input_ids", "yes"], ["equal"]),
    helper.make_node("Cast", ["equal"], ["numbers"], to=TensorProto.FLOAT),
    helper.make_node("ReduceSum", ["numbers", "axis"], ["count"], keepdims=1),
    helper.make_node("MatMul", ["count", "weights"], ["logits"]),
]
constants = {"yes": np.array(5), "axis": np.array([1]), "weights": np.array([[-1.0, 1.0]], np.float32)}
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 2])
made = [numpy_helper.from_array(value, name) for name, value in constants.items()]
graph = helper.make_graph(nodes, "judge", values, [logits], made)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "onnx/model.onnx")
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate([*special, "yes", "no", "ask"])}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.add_special_tokens(special)
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
tokenizer.save(str(folder / "tokenizer.json"))
labels = {"0": "irrelevant", "1": "relevant"}
kind = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "pad_token_id": 0}
(folder / "config.json").write_text(json.dumps(kind | {"id2label": labels, "label2id": {b: int(a) for a, b in labels.items()}}))
roles = {f"{one[1:-1].lower()}_token": one for one in special}
(folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 64} | roles))
(folder / "special_tokens_map.json").write_text(json.dumps(roles))
TextCrossEncoder.add_custom_model("own/judge", ModelSource(hf="own/judge"), model_file="onnx/model.onnx")
judge = TextCrossEncoder("own/judge", specific_model_path=str(folder))
documents = ["no no no", "no yes no", "yes yes yes"]
scores = list(judge.rerank("ask", documents))
print(dict(zip(documents, scores, strict=True)), "best:", documents[int(np.argmax(scores))])
sys.exit([float(one) for one in scores] != [0, -1, -3])
PYTHON
env/bin/python try.py 2> errors || { cat errors; exit 1; }
