#!/usr/bin/env bash
# github.com/sugarme/tokenizer v0.3.0 (Go 1.26; hugot's pure Go session reads by it), beside tokenizers 0.23.3 (PyPI).
# Guess: a tokenizer.json of an uncased BERT gives the same entries in both.
# Seen: in Go accents stay, with `"strip_accents": null`, as published files have it, and with `true`: "café" is unknown
#   where the vocabulary has "cafe". A no-break space divides no words: "10 km" is one unknown word.
# What follows: drop accents and make ordinary spaces of no-break ones before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/sugarme/tokenizer/pretrained"
)

func main() {
	made, err := pretrained.FromFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	found := [][]string{}
	for _, text := range os.Args[2:] {
		one, err := made.EncodeSingle(text)
		if err != nil {
			panic(err)
		}
		found = append(found, one.Tokens)
	}
	text, _ := json.Marshal(found)
	fmt.Println(string(text))
}
GO
export GOPATH="$place/go" GOCACHE="$place/cache" GOFLAGS="-mod=mod -modcacherw"
go mod init words 2> log
go get github.com/sugarme/tokenizer@v0.3.0 2>> log || { cat log; exit 1; }
go build -o words . 2>> log || { cat log; exit 1; }
cat > try.py <<'PYTHON'
import json
import subprocess
import sys

from tokenizers import BertWordPieceTokenizer

words = {w: n for n, w in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] a cafe 10 km".split())}
texts, found = ["a cafe", "a café", "10\u00a0km"], []
for accents in (None, True):
    BertWordPieceTokenizer(words, lowercase=True, strip_accents=accents).save("tokenizer.json")
    python = [BertWordPieceTokenizer(words, lowercase=True, strip_accents=accents).encode(t, add_special_tokens=False).tokens
              for t in texts]
    made = json.loads(subprocess.run(["./words", "tokenizer.json", *texts], capture_output=True, check=True).stdout)
    found.append([text for text, one, other in zip(texts, python, made, strict=True) if one != other])
    print("strip_accents", accents, "Python", python, "Go", made)
sys.exit(found != [["a café", "10\u00a0km"]] * 2)
PYTHON
env/bin/python try.py
