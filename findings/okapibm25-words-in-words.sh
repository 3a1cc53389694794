#!/usr/bin/env bash
# okapibm25 1.4.1 (npm), Node 20.
#
# Guess: BM25 counts a query's words in documents that are cut into words; b = 0 switches the length's part off.
# Seen: a keyword is counted as a part of other words: "art" has three hits in "a party started in the department",
#   which stands before "the art of painting". A dot in a keyword stands for any letter: "3.5" is found in "345" too.
#   b = 0 and k1 = 0 are taken for absent: they score as 0.75 and 1.2.
# What follows: baselines of BM25 beside an encoder, and ranks that are fused with its, are too low for short words.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund okapibm25@1.4.1 > log 2>&1 || { cat log; exit 1; }
cat > try.js <<'JS'
const assert = require("node:assert");
const BM25 = require("okapibm25").default;

const documents = ["the art of painting", "a party started in the department", "it costs 345 euros", "for 3.5 euros"];
const usual = BM25(documents, ["art"], { k1: 1.2, b: 0.75 });
console.log("art:", usual);
assert(usual[1] > usual[0] && usual[0] > 0);

const number = BM25(documents, ["3.5"], { k1: 1.2, b: 0.75 });
console.log("3.5:", number);
assert(number[2] === number[3] && number[3] > 0);

assert.deepStrictEqual(BM25(documents, ["art"], { k1: 1.2, b: 0 }), usual);
assert.deepStrictEqual(BM25(documents, ["art"], { k1: 0, b: 0.75 }), usual);
assert.notDeepStrictEqual(BM25(documents, ["art"], { k1: 1.2, b: 1e-9 }), usual);
JS
node try.js
