// Sums of each shard: rows, ids without the word bit, lengths, labels; then the type of ids and the metadata's format.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	found := []any{}
	for _, path := range os.Args[1:] {
		file, err := os.Open(path)
		check(err)
		reader, err := ipc.NewFileReader(file)
		check(err)
		text, _ := reader.Schema().Metadata().GetValue("shard")
		info := map[string]any{}
		check(json.Unmarshal([]byte(text), &info))
		batch, err := reader.RecordBatch(0)
		check(err)
		mask := ^uint32(0)
		if info["words"] != nil {
			mask >>= 1
		}
		var ids, lengths, labels uint64
		values := batch.Column(0).(*array.List).ListValues()
		switch each := values.(type) {
		case *array.Uint16:
			for _, id := range each.Uint16Values() {
				ids += uint64(id)
			}
		case *array.Uint32:
			for _, id := range each.Uint32Values() {
				ids += uint64(id & mask)
			}
		}
		for row := range int(batch.NumRows()) {
			lengths += uint64(batch.Column(1).(*array.Uint16).Value(row))
			if batch.Column(2).(*array.Boolean).Value(row) {
				labels++
			}
		}
		found = append(found, []any{batch.NumRows(), ids, lengths, labels, values.DataType().Name(), info["format"]})
	}
	line, err := json.Marshal(found)
	check(err)
	fmt.Println(string(line))
}
