#!/usr/bin/env bash
# onnxruntime 1.31.1 (PyPI), with onnx 1.23.2.
# Guess: session.run(["hidden"], …) of a graph with the outputs hidden and logits computes what hidden needs; at the
#   latest RunOptions.only_execute_path_to_fetches, "Only execute the nodes needed by fetch list", leaves out the rest.
# Seen: the node that makes logits alone is run in both cases, and the option, which can be set, changes nothing. It is
#   even run if logits is no output of the graph any more. Only taking the node out helps (onnx.utils.Extractor). A
#   masked-language model that is asked for hidden states so pays for its whole vocabulary at each token.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.31.1

seen=$("$place/env/bin/python" - "$place" <<'PY'
import json
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

weights = [numpy_helper.from_array(np.ones((4, 4), np.float32), name) for name in ("one", "two")]
nodes = [
    helper.make_node("MatMul", ["x", "one"], ["hidden"], name="make_hidden"),
    helper.make_node("MatMul", ["hidden", "two"], ["logits"], name="make_logits"),
]
x, hidden, logits = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "hidden", "logits"))
whole = helper.make_model(
    helper.make_graph(nodes, "two_outputs", [x], [hidden, logits], weights),
    opset_imports=[helper.make_opsetid("", 20)],
    ir_version=10,
)
unlisted = onnx.ModelProto()
unlisted.CopyFrom(whole)
del unlisted.graph.output[1]
part = Extractor(whole).extract_model(["x"], ["hidden"])
option = onnxruntime.RunOptions()
option.only_execute_path_to_fetches = True
for about, model, how in (("plain", whole, None), ("option", whole, option), ("unlisted", unlisted, None), ("part", part, None)):
    settings = onnxruntime.SessionOptions()
    settings.enable_profiling, settings.profile_file_prefix = True, f"{sys.argv[1]}/{about}"
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    session.run(["hidden"], {"x": np.ones((2, 4), np.float32)}, how)
    with open(session.end_profiling()) as file:
        names = {event["name"].removesuffix("_kernel_time") for event in json.load(file) if event["cat"] == "Node"}
    print(f"{about}: {', '.join(sorted(name for name in names if name.startswith('make_')))}")
PY
)
printf '%s\n' "$seen"
[[ $seen == *"plain: make_hidden, make_logits"* && $seen == *"option: make_hidden, make_logits"* ]]
[[ $seen == *"part: make_hidden" ]]
