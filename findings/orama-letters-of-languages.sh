#!/usr/bin/env bash
# @orama/orama 3.1.18 (npm), Node 20.
#
# Guess: `language` names how a text of that language is cut: words stay whole, other words are other words.
# Seen: each language has a list of letters, and what is not on it divides words. Hindi, Nepali and Tamil have no signs
#   of vowels on theirs: "काम" (work) is "क म", and finds each word with one of these consonants; Serbian has no
#   Cyrillic: no text of it is found. Dutch lacks ë and ö, English ï and ö, Danish é: "België" is "belgi".
# What follows: the full-text half of a hybrid search falls short in these languages, without a word; give `tokenizer`.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @orama/orama@3.1.18 > log 2>&1 || { cat log; exit 1; }
cat > try.mjs <<'JS'
import assert from "node:assert";
import { create, insert, search } from "@orama/orama";

const made = (language) => create({ schema: { text: "string" }, language });
const cut = (language, text) => made(language).tokenizer.tokenize(text, language);
const seen = [
  ["indian", "काम का समय", ["क", "म", "समय"]],
  ["nepali", "राजधानी", ["र", "जध", "न"]],
  ["tamil", "தமிழ் மொழி", ["தம", "ழ", "ம"]],
  ["serbian", "Београд је главни град Србије", []],
  ["serbian", "Beograd je glavni grad Srbije", ["beograd", "je", "glavni", "grad", "srbije"]],
  ["dutch", "de coördinatie van België", ["de", "co", "rdinatie", "van", "belgi"]],
  ["danish", "en café", ["en", "caf"]],
  ["english", "Gödel", ["g", "del"]],
  ["russian", "работа и время", ["работа", "и", "время"]],
];
for (const [language, text, words] of seen) {
  console.log(language, text, cut(language, text));
  assert.deepStrictEqual(cut(language, text), words);
}

const serbian = made("serbian");
insert(serbian, { text: "Београд је главни град Србије" });
assert.strictEqual((await search(serbian, { term: "Београд" })).count, 0);

const hindi = made("indian");
for (const text of ["किताब", "कविता"]) insert(hindi, { text });
const found = await search(hindi, { term: "काम" });
console.log("काम:", found.hits.map((hit) => hit.document.text));
assert.strictEqual(found.count, 2);
JS
node try.mjs
