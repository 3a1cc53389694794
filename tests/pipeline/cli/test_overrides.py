"""What people type for a path is read as that path; what Hydra reads stays as it is."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.overrides import parses, readable


@pytest.mark.parametrize(
    "path",
    ["/tmp/việt.xml.bz2", "/tmp/viwiki (1).xml.bz2", "it's.txt", "a&b;c", "/a=b", "50#.txt", "!"],
)
@pytest.mark.parametrize("key", ["corpus.path", "+corpus.path", "++stages.prepare.out"])
def test_a_path_that_the_grammar_has_no_characters_for_is_read(key: str, path: str) -> None:
    override = OverridesParser.create().parse_override(readable(f"{key}={path}"))
    assert override.value() == path


def test_a_leading_tilde_is_home() -> None:
    override = OverridesParser.create().parse_override(readable("corpus.path=~/x (1).bz2"))
    assert override.value() == f"{Path.home()}/x (1).bz2"


@given(st.text(st.sampled_from("a1=~+./,:[]{}()'\" \\$é"), max_size=12))
def test_what_parses_stays_and_nothing_that_does_not_is_broken_further(word: str) -> None:
    mended = readable(word)
    assert mended == word or (not parses(word) and parses(mended))


@pytest.mark.parametrize("word", ["a=[1", "a={b", "a='x", "a=${x", "=x", "--cfg", "a b"])
def test_broken_lists_quotes_and_keys_stay_for_hydra_to_refuse(word: str) -> None:
    assert readable(word) == word
