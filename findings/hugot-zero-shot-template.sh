#!/usr/bin/env bash
# github.com/knights-analytics/hugot v0.6.1 (Go 1.26, its pure Go session; ZeroShotClassificationPipeline), onnx 1.23.2.
# (Builds for some minutes.)
#
# Guess: WithHypothesisTemplate("about {}") asks the model of "about LABEL", and of a BERT the hypothesis is the second
#   segment, as in transformers and as in its own cross-encoder pipeline.
# Seen: options are read first, and then the template is set to "This example is {}.": any other is dropped without a
#   word. token_type_ids are 0 throughout, though the model takes them.
# What follows: scores are those of another template, in another segment, and templates that were tuned make no
#   difference. Set pipeline.HypothesisTemplate after it was made; take models without segments.
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

special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
words = [*special, ".", "about", "this", "example", "is", "cats", "dogs", "they", "run"]
inputs = ["input_ids", "attention_mask", "token_type_ids"]


def write(name: str, read: str, row: int) -> None:
    """Write a model whose logit of entailment is the share of `row` among the numbers of the input `read`."""
    folder = Path(name)
    folder.mkdir()
    values = [helper.make_tensor_value_info(each, TensorProto.INT64, ["b", "l"]) for each in inputs]
    table = np.zeros((len(words), 3), np.float32)
    table[row, 2] = 1
    nodes = [
        helper.make_node("Gather", ["table", read], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["logits"], axes=[1], keepdims=0),
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 3])
    graph = helper.make_graph(nodes, name, values, [logits], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    save(model, folder / "model.onnx")
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
                  "max_input_chars_per_word": 100, "vocab": {word: n for n, word in enumerate(words)}},
    }))
    kind = {"model_type": "bert", "max_position_embeddings": 64}
    kind |= {"id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}}
    (folder / "config.json").write_text(json.dumps(kind))
    (folder / "special_tokens_map.json").write_text(json.dumps({"sep_token": "[SEP]"}))


for word in ("about", "example"):
    write(word, "input_ids", words.index(word))
write("segments", "token_type_ids", 1)
PYTHON
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/knights-analytics/hugot"
	"github.com/knights-analytics/hugot/pipelines"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// reads tells whether the model has found its word, or a second segment, in "they run" with the hypotheses.
func reads(model string, later bool) bool {
	session, err := hugot.NewGoSession()
	check(err)
	defer session.Destroy()
	config := hugot.ZeroShotClassificationConfig{ModelPath: model, Name: model}
	config.Options = []hugot.ZeroShotClassificationOption{
		pipelines.WithLabels([]string{"cats", "dogs"}),
		pipelines.WithMultilabel(true),
		pipelines.WithHypothesisTemplate("about {}"),
	}
	pipeline, err := hugot.NewPipeline(session, config)
	check(err)
	fmt.Printf("template %q, ", pipeline.HypothesisTemplate)
	if later {
		pipeline.HypothesisTemplate = "about {}"
	}
	output, err := pipeline.RunPipeline([]string{"they run"})
	check(err)
	score := output.ClassificationOutputs[0].SortedValues[0].Value
	found := score > 0.501
	fmt.Printf("set later %t: %s is read: %t\n", later, model, found)
	return found
}

func main() {
	if reads("about", false) || !reads("example", false) || reads("segments", false) {
		os.Exit(1)
	}
	if !reads("about", true) || reads("example", true) {
		os.Exit(1)
	}
}
GO
export GOPATH="$place/go" GOCACHE="$place/cache" GOFLAGS="-mod=mod -modcacherw"
go mod init try 2> log
go get github.com/knights-analytics/hugot@v0.6.1 2>> log || { cat log; exit 1; }
go build -o try.bin . 2>> log || { cat log; exit 1; }
./try.bin
