"""The sample corpus."""

import pickle
import sys

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers import FileRange, open_corpus
from tests.pipeline.readers.reading import read
from tests.support.refusals import refused

SENTENCES = "The module opens files. It reads them line by line and closes them after that."


def corpus_of(*packages, **options):
    options["packages"] = list(packages)
    return CorpusConfig(name="sample", reader="sample", options=options)


MODULES = {
    "__init__.py": f'"""{SENTENCES}"""\nraise SystemExit\n',
    "inner/deep.py": f'''"""First comes
this sentence here."""

class A:
    """{SENTENCES}"""

    def f(self):
        """{SENTENCES}"""

def g():
    "Last comes this sentence here."
    def inner():
        """Nobody sees what stands in here."""
''',
    "short.py": '"""Too few."""\n',
    "broken.py": '"""This one is not Python at all."""\n{{',
    "tests/test_deep.py": f'"""{SENTENCES}"""\n',
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that cannot be imported."""
    for name, text in MODULES.items():
        path = tmp_path / "made_up_package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return "made_up_package"


def test_a_module_is_a_document_in_the_order_of_its_code(package):
    found, tally = read(corpus_of(package, minimum_characters=20))
    assert [d.id for d in found] == [f"{package}/__init__.py", f"{package}/inner/deep.py"]
    assert found[1].text.split("\n") == [
        "First comes this sentence here.",
        SENTENCES,  # once, though it stands there twice
        "Last comes this sentence here.",
    ]
    assert tally == {"little prose": 2}
    assert package not in sys.modules


def test_cutting_loses_and_doubles_no_module(package):
    corpus = corpus_of(package, minimum_characters=20)
    whole, _ = read(corpus)
    for split_bytes in (1, 7, 50, 200):
        assert read(corpus, split_bytes)[0] == whole


def test_a_part_of_a_package_can_be_read_alone(package):
    found, _ = read(corpus_of(f"{package}.inner", minimum_characters=20))
    assert [d.id for d in found] == [f"{package}.inner/deep.py"]


def test_splits_travel_to_workers():
    splits = open_corpus(corpus_of("networkx"), "").splits(2**20)
    assert len(splits) > 1
    assert pickle.loads(pickle.dumps(splits)) == splits
    assert all(isinstance(split, FileRange) for split in splits)


def test_a_package_or_an_option_that_is_not_there_is_named():
    with refused(InputError, "no_such_package", key="corpus.options.packages"):
        open_corpus(corpus_of("no_such_package"), "").splits(2**20)
    with pytest.raises(ConfigError, match="no_such_option"):
        open_corpus(corpus_of("json", no_such_option=1), "")


def test_real_packages_give_prose():
    found, _ = read(corpus_of("networkx"))
    lines = [line for document in found for line in document.text.split("\n")]
    assert len(found) > 100
    assert sum(map(len, lines)) > 500_000
    assert sum(">>>" in line or "``" in line for line in lines) < 20
