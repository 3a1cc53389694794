#!/usr/bin/env bash
# github.com/blevesearch/bleve/v2 v2.6.3 (Go 1.26), ScoringModel "bm25".
#
# Guess: the score is that of its page docs/scoring.md: f is a term's frequency in the document, avgFieldLen the average
#   number of analyzed terms of the documents, and terms are summed by weights idf.
# Seen: f is the root of the frequency; the mean length is the number of different terms of the index divided by its
#   documents, rounded up: 2 here, where documents have 19 words in the mean, and 1 in a large index. So long documents
#   sink: one word in 4 goes before three in 20. In queries of several terms weights are idf squared, and the sum is
#   multiplied by the share of terms that were found. An index of NewMemOnly has scores of tf-idf all the same.
# What follows: such a ranking is no baseline of BM25 for an encoder, and k1 and b are not those of other indexes.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"strings"

	"github.com/blevesearch/bleve/v2"
	_ "github.com/blevesearch/bleve/v2/analysis/analyzer/simple"
	"github.com/blevesearch/bleve/v2/mapping"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func onDisk(mapping mapping.IndexMapping) (bleve.Index, error) {
	folder, err := os.MkdirTemp(".", "index")
	check(err)
	return bleve.New(folder+"/index", mapping)
}

type maker func(mapping.IndexMapping) (bleve.Index, error)

func search(made maker, model string, documents []string, text string) map[string]float64 {
	mapping := bleve.NewIndexMapping()
	mapping.DefaultAnalyzer = "simple"
	mapping.ScoringModel = model
	index, err := made(mapping)
	check(err)
	batch := index.NewBatch()
	for n, document := range documents {
		check(batch.Index(fmt.Sprint(n), map[string]any{"text": document}))
	}
	check(index.Batch(batch))
	query := bleve.NewMatchQuery(text)
	query.SetField("text")
	found, err := index.Search(bleve.NewSearchRequest(query))
	check(err)
	scores := map[string]float64{}
	for _, hit := range found.Hits {
		scores[hit.ID] = hit.Score
	}
	return scores
}

func weight(documents, with float64) float64 {
	return math.Log(1 + (documents-with+0.5)/(with+0.5))
}

func main() {
	filler := "b c d e f g h i j k l m n o p q r s t u"
	documents := []string{"cat cat cat " + filler[:33], "cat b c d"}
	for range 18 {
		documents = append(documents, filler)
	}
	mean := float64(len(strings.Fields(strings.Join(documents, " ")))) / float64(len(documents))
	part := func(frequency, length, mean float64) float64 {
		return frequency * 1.2 / (frequency + 1.2*(1-0.75+0.75*length/mean))
	}
	idf := weight(20, 2)
	page := []float64{idf * part(3, 20, mean), idf * part(1, 4, mean)}
	other := []float64{idf * part(math.Sqrt(3), 20, 2), idf * part(1, 4, 2)}
	scores := search(onDisk, "bm25", documents, "cat")
	fmt.Printf("mean length %.1f, three in 20 and one in 4: by the page %.3f, bleve %v\n", mean, page, scores)
	near := func(one, two float64) bool { return math.Abs(one-two) < 1e-4*two }
	if page[0] < page[1] || scores["0"] > scores["1"] || !near(scores["0"], other[0]) || !near(scores["1"], other[1]) {
		os.Exit(1)
	}

	memory := search(bleve.NewMemOnly, "bm25", documents, "cat")
	fmt.Println("in memory", memory)
	if !maps.Equal(memory, search(bleve.NewMemOnly, "tf-idf", documents, "cat")) {
		os.Exit(1)
	}

	// Terms of weights w and v, each once in a document of the same length: their shares are squares, and halved.
	pairs := []string{"cat x", "dog x", "dog y", "dog z"}
	scores = search(onDisk, "bm25", pairs, "cat dog cow")
	ratio := weight(4, 1) / weight(4, 3)
	fmt.Printf("weights of cat and dog %.3f, scores %.3f\n", ratio, scores["0"]/scores["1"])
	whole := search(onDisk, "bm25", []string{"cat dog", "cat x", "dog x"}, "cat dog")
	fmt.Printf("both terms %.3f, one %.3f and %.3f\n", whole["0"], whole["1"], whole["2"])
	if !near(scores["0"]/scores["1"], ratio*ratio) || !near(whole["0"], 2*(whole["1"]+whole["2"])) {
		os.Exit(1)
	}
}
GO
export GOPATH="$place/go" GOCACHE="$place/cache" GOFLAGS="-mod=mod -modcacherw"
go mod init try 2> log
go get github.com/blevesearch/bleve/v2@v2.6.3 2>> log || { cat log; exit 1; }
go build -o try.bin . 2>> log || { cat log; exit 1; }
./try.bin
