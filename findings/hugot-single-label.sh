#!/usr/bin/env bash
# github.com/knights-analytics/hugot v0.6.1 (Go 1.26, its pure Go session), onnx 1.23.2.
# Guess: TextClassificationPipeline, whose default is one label, gives the softmax of the logits, as transformers does
#   and as its option WithSoftmax reads.
# Seen: it compares the pipeline's name, not its kind, with "singleLabel", so that the score of a class is the sigmoid of
#   its logit unless the pipeline has that name: of logits 2 and 1, 0.881 and not 0.731.
# What follows: give WithSoftmax(); thresholds on such scores are none on probabilities.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2
env/bin/python - <<'PYTHON'
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

folder = Path("judge")
folder.mkdir()
inputs = ["input_ids", "attention_mask", "token_type_ids"]
values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in inputs]
# A text is "[CLS] yes no [SEP]"; the logits are the means of its entries' rows.
table = np.zeros((7, 2), np.float32)
table[5] = 8, 4
nodes = [
    helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
    helper.make_node("ReduceMean", ["rows"], ["logits"], axes=[1], keepdims=0),
]
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 2])
graph = helper.make_graph(nodes, "judge", values, [logits], [numpy_helper.from_array(table, "table")])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / "model.onnx")
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
added = [{"id": n, "content": one, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
          "special": True} for n, one in enumerate(special)]
normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": True,
              "lowercase": True}
(folder / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {w: n for n, w in enumerate([*special, "yes", "no"])}},
}))
kind = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "max_position_embeddings": 64}
kind |= {"problem_type": "single_label_classification", "id2label": {"0": "good", "1": "bad"}}
(folder / "config.json").write_text(json.dumps(kind))
PYTHON
cat > main.go <<'GO'
package main

import (
	"fmt"
	"math"
	"os"

	"github.com/knights-analytics/hugot"
	"github.com/knights-analytics/hugot/backends"
	"github.com/knights-analytics/hugot/pipelines"
)

type option = backends.PipelineOption[*pipelines.TextClassificationPipeline]

func score(name string, options ...option) float64 {
	session, err := hugot.NewGoSession()
	check(err)
	defer session.Destroy()
	config := hugot.TextClassificationConfig{ModelPath: "judge", Name: name, Options: options}
	pipeline, err := hugot.NewPipeline(session, config)
	check(err)
	found, err := pipeline.RunPipeline([]string{"yes no"})
	check(err)
	one := found.ClassificationOutputs[0][0]
	fmt.Printf("%-12s %d options: %s %.3f\n", name, len(options), one.Label, one.Score)
	return math.Round(1000*float64(one.Score)) / 1000
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	usual := score("mine")
	named := score("singleLabel")
	asked := score("mine", pipelines.WithSingleLabel(), pipelines.WithSoftmax())
	single := score("mine", pipelines.WithSingleLabel())
	if usual != 0.881 || single != 0.881 || named != 0.731 || asked != 0.731 {
		os.Exit(1)
	}
}
GO
export GOPATH="$place/go" GOCACHE="$place/cache" GOFLAGS="-mod=mod -modcacherw"
go mod init judge 2> log
go get github.com/knights-analytics/hugot@v0.6.1 2>> log || { cat log; exit 1; }
go build -o judge.bin . 2>> log || { cat log; exit 1; }
./judge.bin
