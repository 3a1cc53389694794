"""Check that code and documents keep to plain English: `python tests/plain_english.py [--lower]`.

Each folder may have at most as many banned words, and as many functions that a preposition or a
participle names, as `plain_english.json` says; `--lower` writes the present counts there, where they
are smaller. Sentences of documents have at most 25 words, subjects of new commits at most 72 characters.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".json")
SUBJECT = 72
FIRST = "73af74ae"  # the commit before the rule
WORDS = re.compile(
    r"\b(anew|beside|mends?|mended|mending|told|stands|likewise|shall|whoever|nobody|anybody"
    r"|so many|goes on|go on|went on|goes away|as far as|nothing is there|is no (?!longer))\b",
    re.IGNORECASE,
)
# Functions are named by a verb or by the noun that they return: `parse_argv`, `stage_status`.
NAMES = re.compile(
    r"(of|in|on|by|with|without|for|after|before|behind)(_\w+)?|(?!(?:embed|feed|need|seed|speed)$)[a-z]+ed"
    r"|begun|built|chosen|drawn|found|held|kept|known|left|made|meant|sent|shown|written|laid_out|taken_up|standing|newest"
)
SENTENCE_WORDS = 25
LEFT_OUT = re.compile(r"```.*?```|<!--.*?-->|\]\([^)]*\)", re.S)  # code, comments, addresses
BLOCK = re.compile(r"\n\s*\n|\n(?=- |\d+\. |\|)")
SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])")
AREAS = ("pipeline", "model", "conf", "docs", "k8s", "deploy", "docker", "benchmarks")


def own_texts():
    """Yield name and text of each file that is checked."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in done.stdout.splitlines():
        path = ROOT / name
        own = name.startswith(AREAS) or ("/" not in name and name.endswith(".md"))
        if own and path.suffix in (".py", ".md", ".yaml", ".sh") and path.is_file() and not path.is_symlink():
            yield name, path.read_text(encoding="utf-8")


def long_sentences(text):
    """Yield the line of each long sentence of a document; headings, tables and pictures have none."""
    text = LEFT_OUT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for block in BLOCK.split(text):
        if not block.lstrip().startswith(("#", "|", "!")):
            for sentence in SENTENCE.split(block):
                if len(sentence.split()) > SENTENCE_WORDS:
                    yield text.count("\n", 0, text.index(sentence)) + 1


def banned_words():
    """Return the banned words and names of each folder of code or documents, with their places."""
    found = {}
    for name, text in own_texts():
        for word in WORDS.finditer(text):
            line = text.count("\n", 0, word.start()) + 1
            found.setdefault(str(Path(name).parent), []).append(f"{name}:{line}: banned word {word[0]!r}")
        if name.endswith(".py") and name.startswith(("pipeline/", "model/")):
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and NAMES.fullmatch(node.name):
                    place = f"{name}:{node.lineno}: no verb, and no noun for what it returns: {node.name}"
                    found.setdefault(f"names of {Path(name).parent}", []).append(place)
    return found


def long_subjects():
    """Return the subjects of new commits that are too long; none outside a full clone."""
    done = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", f"{FIRST}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [subject for subject in done.stdout.splitlines() if len(subject) > SUBJECT]


def main():
    """Run the check; the exit code says whether it passed."""
    limits, now = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}, banned_words()
    if "--lower" in sys.argv:
        lower = {name: min(len(words), limits.get(name, len(words))) for name, words in now.items()}
        LIMITS.write_text(json.dumps(lower, indent=1, sort_keys=True) + "\n")
        return 0
    errors = [
        f"{word} (CONTRIBUTING.md; at most {limits.get(name, 0)} in {name}/)"
        for name, words in sorted(now.items())
        if len(words) > limits.get(name, 0)
        for word in words
    ]
    errors += [
        f"{name}:{line}: sentence of more than {SENTENCE_WORDS} words"
        for name, text in own_texts()
        if name.endswith(".md") and name != "CHANGELOG.md"
        for line in long_sentences(text)
    ]
    errors += [f"commit subject of more than {SUBJECT} characters: {subject}" for subject in long_subjects()]
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
