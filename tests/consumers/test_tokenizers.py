"""The next tokenizers reads what `vocab` writes, though it has no regular expressions in Python."""

import pytest

from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.consumers.conftest import python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800), pytest.mark.tool("tokenizers", "1.0.0rc3")]
SCRIPT = """
import json, sys
from tokenizers import Tokenizer
given = json.loads(sys.argv[1])
library = Tokenizer.from_file(given["file"])
print(json.dumps([list(library.encode(text).ids) for text in given["texts"]]))
"""


def test_a_new_vocabulary_has_the_same_ids_in_the_next_release(tmp_path, record_property):
    source = build([*SPECIAL, "a", "##a", "b", "##b", "é", ",", "the"], lowercase=False, new=True)
    (tmp_path / "tokenizer.json").write_text(source)
    texts = ["the ab, bé", "a" * 100, "a" * 250, "b" * 101 + " the e\u0301"]
    run = python_with("tokenizers", "tokenizers==1.0.0rc3")
    ours = WordPiece(source)
    expected = [[ours.cls, *ours.encode([text])[0].tolist(), ours.sep] for text in texts]
    assert run(SCRIPT, {"file": str(tmp_path / "tokenizer.json"), "texts": texts}) == expected
    record_property("works", "the same ids")
    record_property("differs", "no regular expressions in Python: other vocabularies may not load")
