"""A code of a language, however it is written, is the one that the tables have."""

import pytest

from pipeline.common.language_codes import base_code, is_code, wikipedia_code
from pipeline.text.encodings import candidates
from pipeline.text.sentences import split_sentences
from pipeline.text.wikitext import Extractor, namespaces
from tests.support.runs import configured

WRITTEN = [
    ("de", "de de-AT de_DE DE deu ger de-formal"),
    ("zh", "zh zh_CN zh-Hant-TW zho cmn chi"),
    ("sr", "sr sr-Latn srp"),
    ("ru", "ru ru_RU rus"),
]


@pytest.mark.parametrize(("code", "written"), WRITTEN)
def test_regions_scripts_and_three_letters_mean_the_same_language(code: str, written: str) -> None:
    text = "Er kam am 3. Mai z.B. nach Wien. Dr. No ging."
    pages = ["-{zh-cn:a; zh-tw:b}-", '{{"|A}}', "{{仮リンク|B}}"]
    for other in written.split():
        assert wikipedia_code(other) == code
        assert candidates(other) == candidates(code)
        assert split_sentences(text, other) == split_sentences(text, code)
        one, two = Extractor(code), Extractor(other)
        assert [one.text(page) for page in pages] == [two.text(page) for page in pages]


@pytest.mark.parametrize(
    ("code", "base"),
    [
        ("zh-yue", "zh"),
        ("zh-min-nan", "zh"),
        ("zh-classical", "zh"),
        ("be-tarask", "be"),
        ("simple", "simple"),
        ("als", "als"),
        ("ceb", "ceb"),
        ("tlh", "tlh"),
    ],
)
def test_wikipedias_own_codes_are_kept(code: str, base: str) -> None:
    assert (wikipedia_code(code), base_code(code)) == (code, base)
    # The converter of scripts is not enabled in the other wikis of Chinese.
    assert Extractor(code).text("Ion -{x}- here") == "Ion -{x}- here"


DUMPS = """
en:enwiki simple:simplewiki zh-yue:zh_yuewiki yue:zh_yuewiki zh_min_nan:zh_min_nanwiki be-tarask:be_x_oldwiki
be-x-old:be_x_oldwiki nds-nl:nds_nlwiki roa-rup:roa_rupwiki rup:roa_rupwiki nb:nowiki nob:nowiki nn:nnwiki
pt-BR:ptwiki deu_Latn:dewiki iw:hewiki in:idwiki cmn:zhwiki zh-classical:zh_classicalwiki gsw:alswiki als:alswiki
DE:dewiki map-bms:map_bmswiki vi:viwiki ceb:cebwiki
"""


@pytest.mark.parametrize(("language", "dump"), [entry.split(":") for entry in DUMPS.split()])
def test_every_way_to_write_a_language_asks_for_the_dump_that_there_is(language: str, dump: str) -> None:
    made = configured("download", "+corpus=wiki", f"corpus.language={language}").corpus
    for place in (made.files[0].url, made.files[0].sums):
        assert place.startswith(f"https://dumps.wikimedia.org/{dump}/latest/{dump}-latest-")
    kept = configured("prepare", "+corpus=wiki", f"corpus.language={language}", "corpus.path=FILE").corpus
    assert f"/{language}wiki/" in kept.files[0].url, "which nothing reads: fingerprints stay"


def test_every_language_of_wikipedia_has_a_code_and_a_mistake_is_none() -> None:
    assert [code for code in namespaces.LANGUAGES if not is_code(code)] == []
    assert [code for code in ("vn", "xx_YY", "Vietnamese", "none", "v", "", "#") if is_code(code)] == []
