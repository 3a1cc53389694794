"""What `prepare` advises where a split of the data has no instances."""

import json
import re
import zipfile

import pytest

from pipeline import prepare
from pipeline.errors import InputError
from pipeline.preparation import estimate
from pipeline.shards.holdout import LowestHashes, document_hash
from pipeline.text import clean
from tests.support import preparing
from tests.support.refusals import refused

WORDS = ["sea", "hill", "moon", "lamp", "rain", "bird", "stone", "leaf", "."]


def document(number, sentences):
    """Return a text of some sentences, one per line, another one for each `number`."""
    return "\n".join(f"{WORDS[number % 8]} {WORDS[number // 8 % 8]} {WORDS[k % 8]}." for k in range(sentences))


def made(folder, texts, share, **more):
    """Return the figures of a run."""
    preparing.vocabulary(folder, WORDS)
    (folder / "a.txt").write_text("\n\n".join(texts))
    config = preparing.settings(
        "lines", folder / "a.txt", folder, workdir=str(folder), minimum_characters=0, validation_share=share, **more
    )
    out = folder / f"out-{share}"
    out.mkdir()
    return prepare.make(config, out).figures


def in_order_of_hashes(texts):
    """Return the texts, those that are held out first at the beginning."""
    lowest = LowestHashes()
    for text in texts:
        lowest.add(document_hash(clean.clean(text)))
    return sorted(texts, key=lambda text: document_hash(clean.clean(text))[:8]), lowest


def held_out_singles(singles):
    """Return documents; the `singles` that are held out first have one sentence."""
    ones = [document(number, 1) for number in range(64)]
    ordered, lowest = in_order_of_hashes(ones)
    return [*ordered[:singles], *more_than(ordered[singles])], lowest


def more_than(text):
    """Return documents of several sentences that are held out after `text`."""
    least = document_hash(clean.clean(text))[:8]
    long = [document(number, 9) for number in range(64)]
    return [each for each in long if document_hash(clean.clean(each))[:8] > least]


def test_held_out_documents_without_pairs_are_named(tmp_path):
    texts, lowest = held_out_singles(1)
    share = lowest.share_for(1)
    with refused(InputError, key="validation_share") as caught:
        made(tmp_path, texts, share)
    assert "holds out 1 document," in str(caught.value)
    assert "pairs=none" in str(caught.value)
    (advised,) = map(float, re.findall(r"set validation_share=(\S+) ", str(caught.value)))
    assert advised > share
    assert made(tmp_path, texts, advised)["totals"]["validation"] > 0


def test_training_documents_without_pairs_are_not_all_held_out(tmp_path):
    ordered, lowest = in_order_of_hashes([document(number, 1) for number in range(5)])
    with refused(InputError, key="pairs") as caught:
        made(tmp_path, ordered, lowest.share_for(4))
    assert "1 training document" in str(caught.value)
    with refused(InputError, key="validation_share") as caught:
        made(tmp_path, ordered, 0.999999)
    assert "all 5 documents" in str(caught.value)


def test_where_nothing_is_read_it_is_said_what_is_wrong_with_all(tmp_path):
    """As a field's name, where `on_error` passes over each row, or the names of files in archives."""
    (tmp_path / "rows.jsonl").write_text('{"body": "One."}\n' * 3)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("news.en", "One.")
    preparing.vocabulary(tmp_path, WORDS)
    found = preparing.settings("jsonl", tmp_path, tmp_path, workdir=str(tmp_path), on_error="skip")
    (tmp_path / "out").mkdir()
    said = "line 1: field text not found .*corpus.options.text.*unpack what has other names"
    with refused(InputError, said, key="corpus.path"):
        prepare.make(found, tmp_path / "out")


def test_what_is_wrong_in_the_first_row_is_found_with_the_plan(tmp_path):
    """However small the corpus is, and before a vocabulary is there."""
    (tmp_path / "rows.jsonl").write_text('{"body": "One."}\n')
    found = preparing.settings("jsonl", tmp_path / "rows.jsonl", tmp_path, workdir=str(tmp_path))
    with refused(InputError, "field text not found", line=1):
        estimate.estimate_preparation(found)
    found.corpus.options["text"] = "body"
    assert estimate.estimate_preparation(found) is None


@pytest.mark.parametrize(
    ("where", "gone", "said"),
    [
        ("lang != XX", "rows.jsonl line 5", ["corpus.options.where"]),
        ("lang != xx", "rows.jsonl line 5", []),
        ("lang != xx", "\n", ["filters.remove"]),
        ("lang != xx", "rows.jsonl:5", ["gone.txt"]),
    ],
)
def test_what_takes_no_document_out_is_said(where, gone, said, tmp_path):
    texts = [document(number, 9) for number in range(40)]
    rows = [{"text": text, "lang": "xx" if number < 3 else "de"} for number, text in enumerate(texts)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    preparing.vocabulary(tmp_path, WORDS)
    (tmp_path / "gone.txt").write_text(gone.replace("rows", f"{tmp_path}/rows", 1))
    found = preparing.settings("jsonl", tmp_path / "rows.jsonl", tmp_path, workdir=str(tmp_path), validation_share=0.3)
    found.corpus.options["where"], found.filters.remove = where, str(tmp_path / "gone.txt")
    (tmp_path / "out").mkdir()
    made = prepare.make(found, tmp_path / "out")
    about = [line for line in made.figures["warnings"] if re.search("where|remove|gone", line)]
    assert [any(word in line for line in about) for word in said] == [True] * len(about)
    assert made.figures["documents"]["read"] == 40 - 3 * (where == "lang != xx")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<p>A &amp; B</p> run.", "html=true"),
        ("One<BR>runs.", "html=true"),
        ("A &apos;runs&apos;.", "entities of HTML"),
        ("a\\nb\\nc runs.", r"\n for line ends"),
        ("One.\\nIt runs.", r"\n for line ends"),
        ("A <unk> runs @-@ runs.", "sed 's/ @"),
        ("A -LRB- run@@ s.", "-LRB-"),
        ("[b]A[/b] [runs](https://a.b).", "[/b]"),
        (r"a < b, @@ ▁▁ \nu and \nabla_x runs.", ""),
    ],
)
@pytest.mark.parametrize(("reader", "options"), [("jsonl", {}), ("text", {"document": "line"})])
def test_markup_is_said_with_its_share(reader, options, text, said, tmp_path):
    preparing.vocabulary(tmp_path, WORDS)
    rows = [f"{text if n % 2 else 'plain'} number {n}" for n in range(8)]
    (folder := tmp_path / "rows").mkdir()
    (folder / "a.jsonl").write_text("\n".join(json.dumps({"text": row}) for row in rows))
    (folder / "a.txt").write_text("\n".join(rows))
    for name in ("b.csv", "README.md"):
        (folder / name).write_text("text\n")
    more = {"minimum_characters": 0, "pairs": "none", "validation_share": 0, "options": options}
    (tmp_path / "out").mkdir()
    warnings = prepare.make(preparing.settings(reader, folder, tmp_path, **more), tmp_path / "out").figures["warnings"]
    assert [text for text in warnings if ".csv" in text and ".md" not in text]
    known = said.replace("entities of HTML", "html=true") if reader == "jsonl" else said.replace("html=true", "<br>")
    assert [known in text for text in warnings if "50% of the documents" in text] == [True] * bool(known)
