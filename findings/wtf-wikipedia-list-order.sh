#!/usr/bin/env bash
# wtf_wikipedia 10.4.2 (npm): text after a list, or after an indented line.
#
# Guess: text() has the words of an article in the article's order, and all of them.
# Seen: within a paragraph, list items and indented lines move behind what follows them: "The law is", formula, "where
#   m is" becomes "The law is where m is", formula. What stands between "<" and ">" is taken for a tag, also "a < b
#   and c > d".
# What follows: indented formulas and quotations are common in Wikipedia; sentences of text made this way run
#   together.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix "$work" wtf_wikipedia@10.4.2
cat > "$work/try.mjs" <<'JS'
import wtf from "wtf_wikipedia";

const texts = {
  indented: "The law is\n: F equals m times a\nwhere m is the mass.",
  listed: "Three are known:\n* one\n* two\nAll were found in 1900.",
  apart: "Three are known:\n* one\n* two\n\nAll were found in 1900.",
  smaller: "If a < b and c > d then stop.",
};
const seen = {};
for (const [name, text] of Object.entries(texts)) {
  seen[name] = wtf(text).text().split(/[\s*]+/).join(" ");
  console.log(`${name}: ${seen[name]}`);
}
const asSeen =
  seen.indented === "The law is where m is the mass. F equals m times a" &&
  seen.listed === "Three are known: All were found in 1900. one two" &&
  seen.apart === "Three are known: one two All were found in 1900." &&
  seen.smaller === "If a d then stop.";
process.exit(asSeen ? 0 : 1);
JS
node "$work/try.mjs"
