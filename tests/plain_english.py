"""Check that code and documents keep to plain English: `python tests/plain_english.py [--lower]`.

Each folder may have at most as many banned words, and the documents as many long sentences, as
`plain_english.json` says; `--lower` writes the present counts there, where they are smaller. New
commits have subjects of at most 72 characters.
"""

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
LONG = "sentences of more than 25 words"
LEFT_OUT = re.compile(r"```.*?```|<!--.*?-->|\]\([^)]*\)", re.S)  # code, comments, addresses
BLOCK = re.compile(r"\n\s*\n|\n(?=- |\d+\. |\|)")
SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])")
AREAS = ("pipeline", "model", "conf", "docs", "k8s", "deploy", "docker", "benchmarks")


def long_sentences(text: str) -> int:
    """Return how many sentences of a document are long; headings, tables and pictures have none."""
    blocks = [block for block in BLOCK.split(LEFT_OUT.sub("", text)) if not block.lstrip().startswith(("#", "|", "!"))]
    return sum(len(sentence.split()) > 25 for block in blocks for sentence in SENTENCE.split(block))


def counts() -> dict[str, int]:
    """Return the number of banned words per folder of code or documents, and of long sentences in all."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    found: dict[str, int] = {}
    for name in listed:
        path = ROOT / name
        own = name.startswith(AREAS) or ("/" not in name and name.endswith(".md"))
        if not own or path.suffix not in (".py", ".md", ".yaml", ".sh") or path.is_symlink():
            continue
        if path.suffix == ".md" and name != "CHANGELOG.md" and path.is_file():
            found[LONG] = found.get(LONG, 0) + long_sentences(path.read_text(encoding="utf-8"))
        if path.is_file() and (number := len(WORDS.findall(path.read_text(encoding="utf-8")))):
            folder = str(Path(name).parent)
            found[folder] = found.get(folder, 0) + number
    return found


def long_subjects() -> list[str]:
    """Return the subjects of new commits that are too long; none outside a full clone."""
    done = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", f"{FIRST}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [subject for subject in done.stdout.splitlines() if len(subject) > SUBJECT]


def main() -> int:
    """Run the check; the exit code says whether it passed."""
    limits, now = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}, counts()
    if "--lower" in sys.argv:
        lower = {name: min(count, limits.get(name, count)) for name, count in now.items()}
        LIMITS.write_text(json.dumps(lower, indent=1, sort_keys=True) + "\n")
        return 0
    worse = {name: count for name, count in now.items() if count > limits.get(name, 0)}
    for name, count in sorted(worse.items()):
        what = "" if name == LONG else " banned words"
        print(f"{name}: {count}{what}, at most {limits.get(name, 0)} (CONTRIBUTING.md)")
    subjects = long_subjects()
    for subject in subjects:
        print(f"commit subject of more than {SUBJECT} characters: {subject}")
    return 1 if worse or subjects else 0


if __name__ == "__main__":
    sys.exit(main())
