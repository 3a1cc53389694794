#!/usr/bin/env bash
# github.com/markusmobius/go-trafilatura v1.12.2 (Extract, ContentText), Go 1.26. (Builds for some minutes.)
#
# Guess: of a sentence in the main text each word is kept, at most without what trafilatura in Python drops (the content
#   of <time>), and words that a page shows as one are one.
# Seen: at <time>, <label>, <math> or the reading of a ruby (<rt>) the paragraph ends: "The war began on", and all that
#   follows in it is lost, with the sentences after. Elements within a word have blanks around them: "H<sub>2</sub>O" is
#   "H 2 O", "wo<i>r</i>d" is "wo r d". <abbr>, <cite>, <span> and <br> are right. EnableFallback changes nothing.
# What follows: texts lose most of a paragraph at each date, and have words that nobody wrote. Turn such elements into
#   <span> before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/markusmobius/go-trafilatura"
)

const other = "This is a paragraph of the article that is long enough to be kept as main text, with more words."

// extract gives what is left of a paragraph that stands among others.
func extract(paragraph string, fallback bool) string {
	others := strings.Repeat("<p>"+other+"</p>", 4)
	page := "<html><body><article><h1>Title</h1>" + others + "<p>" + paragraph + "</p>"
	page += others + "</article></body></html>"
	found, err := trafilatura.Extract(strings.NewReader(page), trafilatura.Options{EnableFallback: fallback})
	if err != nil {
		panic(err)
	}
	if strings.Count(found.ContentText, other) != 8 {
		panic("other paragraphs are not whole")
	}
	text := strings.ReplaceAll(strings.ReplaceAll(found.ContentText, other, ""), "Title", "")
	return strings.Join(strings.Fields(text), " ")
}

func main() {
	const end = " A second sentence follows here."
	cases := [][2]string{
		{"The <abbr>UN</abbr> met<br>in <span>a</span> <cite>book</cite>." + end, "The UN met in a book." + end},
		{"The war began on <time>28 July 1914</time> in the west." + end, "The war began on"},
		{"It is <label>here</label> that it began." + end, "It is"},
		{"Now let <math><mi>x</mi></math> be given." + end, "Now let"},
		{"The sign <ruby>han<rt>kan</rt></ruby> is old." + end, "The sign han"},
		{"Water is H<sub>2</sub>O at last." + end, "Water is H 2 O at last." + end},
		{"A bold wo<i>r</i>d stands here." + end, "A bold wo r d stands here." + end},
	}
	asSeen := true
	for _, each := range cases {
		for _, fallback := range []bool{false, true} {
			found := extract(each[0], fallback)
			fmt.Printf("fallback %t: %s\n  gives %q\n", fallback, each[0], found)
			asSeen = asSeen && found == each[1]
		}
	}
	if !asSeen {
		os.Exit(1)
	}
}
GO
export GOPATH="$place/go" GOCACHE="$place/cache" GOFLAGS="-mod=mod -modcacherw"
go mod init try 2> log
go get github.com/markusmobius/go-trafilatura@v1.12.2 2>> log || { cat log; exit 1; }
go build -o try.bin . 2>> log || { cat log; exit 1; }
./try.bin 2>> log
