#!/usr/bin/env bash
# transformers.js 4.3.2 (npm @huggingface/transformers, pipeline "feature-extraction"), onnx 1.23.2; Node 20.
#
# Guess: pooling "last_token" (and "eos") gives the vector of a text's last token, the same for a text alone and in a
#   batch, as "mean" does by the attention mask and as the pooling of that name in sentence-transformers does.
# Seen: it gives the last place of the batch. With padding on the right, as BERT's tokenizers have unless told, each
#   text but the longest has the vector of [PAD], without a word; alone it is right. "mean" and "cls" are right in both.
# What follows: vectors of a text depend on what is sent with it. Send texts one by one, or set padding_side to "left"
#   where the model allows it.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2 tokenizers==0.23.3
npm install --silent --ignore-scripts --no-audit --no-fund @huggingface/transformers@4.3.2
mkdir -p models/ids/onnx
env/bin/python - <<'PYTHON'
import json
from pathlib import Path

from onnx import TensorProto, helper, save
from tokenizers import BertWordPieceTokenizer

# The vector of a token is its id.
folder = Path("models/ids")
names = ["input_ids", "attention_mask"]
nodes = [
    helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
    helper.make_node("Unsqueeze", ["numbers", "axis"], ["last_hidden_state"]),
]
graph = helper.make_graph(
    nodes,
    "ids",
    [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in names],
    [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "l", 1])],
    [helper.make_tensor("axis", TensorProto.INT64, [1], [2])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
save(model, folder / "onnx/model.onnx")
(folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
words = "[PAD] [UNK] [CLS] [SEP] [MASK] one two three four".split()
BertWordPieceTokenizer({word: n for n, word in enumerate(words)}).save(str(folder / "tokenizer.json"))
special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
settings = {"tokenizer_class": "BertTokenizer", "model_max_length": 64} | special
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
PYTHON
cat > try.mjs <<'JS'
import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "models";
const extract = await pipeline("feature-extraction", "ids", { dtype: "fp32" });
const texts = ["one two three four", "one two"];
const seen = {};
for (const pooling of ["last_token", "eos", "cls", "mean"]) {
  const alone = [];
  for (const text of texts) alone.push((await extract(text, { pooling })).tolist()[0][0]);
  const batch = (await extract(texts, { pooling })).tolist().map((vector) => vector[0]);
  console.log(`${pooling}: alone ${alone}, in a batch ${batch}`);
  seen[pooling] = alone.concat(batch).map((value) => value.toFixed(2)).join(" ");
}
// [PAD] is 0, [CLS] 2 and [SEP] 3.
const asSeen =
  seen.last_token === "3.00 3.00 3.00 0.00" &&
  seen.eos === "3.00 3.00 3.00 0.00" &&
  seen.cls === "2.00 2.00 2.00 2.00" &&
  seen.mean === "5.17 4.00 5.17 4.00";
process.exit(asSeen ? 0 : 1);
JS
node try.mjs
