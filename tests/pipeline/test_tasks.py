"""The sample tasks."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import tasks
from pipeline.config import CorpusConfig, TasksConfig
from pipeline.errors import ConfigError, InputError
from pipeline.shards.holdout import document_hash, is_held_out
from pipeline.tasks import Row, exchange_seconds, make, shuffle_words
from pipeline.text import clean
from tests.support.refusals import refused

SHARE = 0.3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two hundred small books; the sentences of each say which one they are from."""
    place = tmp_path_factory.mktemp("books")
    for book in range(200):
        lines = [
            f"Sentence {line} of book{book} tells us about ants, bees, cats, dogs and {line * 7}." for line in range(12)
        ]
        (place / f"book{book}.txt").write_text("\n\n".join(lines))
    return place


def config(folder, **settings):
    settings = {"validation_share": SHARE, "train_rows": 100, "dev_rows": 40} | settings
    corpus = CorpusConfig(name="books", reader="books", path=str(folder))
    return TasksConfig(corpus=corpus, source="s", out="out", **settings)


def table(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def books_in(rows):
    return {word for row in rows for word in " ".join(row).split() if word.startswith("book")}


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("tasks")
    make(config(folder), out)
    return out


@pytest.mark.parametrize("task", tasks.TASKS, ids=lambda task: task.folder)
def test_files_are_in_the_glue_layout_and_balanced(task, made):
    for side, count in {"train": 100, "dev": 40}.items():
        header, *rows = table(made / task.folder / f"{side}.tsv")
        assert header == ["index", *task.columns, "label"]
        assert {len(row) for row in rows} == {len(header)}
        assert [row[0] for row in rows] == [str(index) for index in range(count)]
        assert Counter(row[-1] for row in rows) == {"0": count // 2, "1": count // 2}


def test_train_and_dev_are_of_different_held_out_documents(made, folder):
    dev, train = (
        books_in([row for path in made.glob(f"*/{side}.tsv") for row in table(path)[1:]]) for side in ("dev", "train")
    )
    assert dev
    assert train
    assert not dev & train
    for book in dev | train:
        text = (folder / f"{book}.txt").read_text().replace("\n\n", "\n")
        assert is_held_out(document_hash(clean.clean(text)), SHARE)


def test_removed_documents_are_in_no_task(made, folder, tmp_path):
    used = sorted(books_in([row for path in made.glob("*/*.tsv") for row in table(path)[1:]]))
    copy = folder / "zz copy.txt"
    copy.write_bytes((folder / f"{used[0]}.txt").read_bytes())
    by_hash = document_hash(clean.clean((folder / f"{used[1]}.txt").read_text().replace("\n\n", "\n"))).hex()
    (tmp_path / "removed").write_text(f"{copy}\n{by_hash}\n{folder / used[2]}.txt\n")
    (tmp_path / "made").mkdir()
    try:
        make(config(folder, remove=str(tmp_path / "removed")), tmp_path / "made")
    finally:
        copy.unlink()
    left = books_in([row for path in (tmp_path / "made").glob("*/*.tsv") for row in table(path)[1:]])
    assert left
    assert not left & set(used[:3])


def test_labels_say_whether_the_parts_belong_together(made):
    for name in ("Sample-Next", "Sample-Passage"):
        for _, first, second, label in table(made / name / "train.tsv")[1:]:
            assert (books_in([[first]]) == books_in([[second]])) == (label == "1")


def test_the_same_rows_from_run_to_run_and_others_under_another_seed(folder, made, tmp_path):
    for name, seed in {"same": 0, "other": 1}.items():
        (tmp_path / name).mkdir()
        make(config(folder, seed=seed), tmp_path / name)
    for path in made.glob("*/*.tsv"):
        same, other = (tmp_path / name / path.relative_to(made) for name in ("same", "other"))
        assert same.read_bytes() == path.read_bytes() != other.read_bytes()


def test_fewer_rows_than_asked_are_said(folder, tmp_path):
    result = make(config(folder, train_rows=10_000), tmp_path)
    assert "fewer" in result.summary
    figures = json.loads(json.dumps(result.figures))
    assert 100 < figures["rows"]["Sample-Order"]["train"] < 10_000


def test_too_few_documents_is_the_users_to_mend(folder, tmp_path):
    with refused(InputError, r"tasks=\[\]", key="validation_share") as caught:
        make(config(folder, validation_share=1e-9), tmp_path)
    (share,) = re.findall(r"tasks.validation_share=(\S+)\)", str(caught.value))
    assert len(tasks.draw_held_out(config(folder, validation_share=float(share)))) == 4


def test_a_corpus_of_too_few_documents_is_not_told_to_hold_more_of_them_out(folder, tmp_path):
    for path in sorted(folder.rglob("*.txt"))[:2]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="2 documents") as caught:
        tasks.draw_held_out(config(tmp_path))
    assert "tasks.validation_share" not in str(caught.value)


def test_ranges_are_checked(folder):
    with pytest.raises(ConfigError, match="validation_share"):
        config(folder, validation_share=0.0)


ROWS = st.lists(st.integers(0, 5), max_size=60).map(
    lambda documents: [Row(d, (f"a{i}", f"b{i} {d}")) for i, d in enumerate(documents)]
)


@given(ROWS)
def test_exchanged_seconds_are_of_another_document_and_keep_their_counts(rows):
    spoiled = exchange_seconds(rows, np.uint64(1))
    home = {row.parts[0]: row.document for row in rows}
    for row in spoiled:
        assert home[row.parts[0]] != int(row.parts[1].split()[1])
    kept = [row for row in rows if row.parts[0] in {row.parts[0] for row in spoiled}]
    assert Counter(row.parts[1] for row in kept) == Counter(row.parts[1] for row in spoiled)
    largest = max(Counter(home.values()).values(), default=0)
    expected = min(len(rows), 2 * (len(rows) - largest))
    assert len(spoiled) == expected


@given(st.lists(st.sampled_from("abcdefgh"), min_size=8, max_size=20), st.integers(0, 2**32))
def test_shuffling_keeps_the_words_and_the_ends(found, key):
    found[1:3] = ["x", "y"]
    [row] = shuffle_words([Row(0, (" ".join(found),))], np.uint64(key))
    shuffled = row.parts[0].split()
    assert shuffled != found
    assert ((shuffled[0], shuffled[-1]), sorted(shuffled)) == ((found[0], found[-1]), sorted(found))


def test_where_spaces_part_no_words_characters_do():
    assert tasks.words("我們今天去公園看花然後回家吃飯睡覺明天再去學校讀書")[1] == ""
    assert tasks.words("we go home")[0] == ["we", "go", "home"]
