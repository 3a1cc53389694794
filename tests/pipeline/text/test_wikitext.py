import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.readers import FileRange, ReadLog, wikipedia
from pipeline.readers.io.compressed import CompressedFile
from pipeline.text.wikitext import Extractor, namespaces
from pipeline.text.wikitext.lines import paragraphs, remove_link_sections
from pipeline.text.wikitext.templates import Templates

GOLDEN = Path(__file__).parent / "golden"
EXTRACT = {language: Extractor(language).text for language in ("en", "zh", "fr", "it", "es", "ru", "ko", "ar", "pl")}


def golden():
    cases = []
    for path in sorted(GOLDEN.glob("*.txt")):
        pairs = path.read_text(encoding="utf-8").removesuffix("\n").split("\n~~~~\n")
        for number, pair in enumerate(pairs):
            wikitext, expected = pair.split("\n>>>>\n")
            cases.append(pytest.param(path.stem, wikitext, expected, id=f"{path.stem}-{number}"))
    return cases


@pytest.mark.parametrize(("construct", "wikitext", "expected"), golden())
def test_construct_reads_as_expected(construct, wikitext, expected):
    assert EXTRACT[construct.partition(".")[2] or "en"](wikitext) == expected


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("{{as of|2014|²}}", "As of ² 2014"),
        ("{{as of|2014|05}}", "As of May 2014"),
        (f"{{{{as of|2014|{'9' * 5000}}}}}", f"As of {'9' * 5000} 2014"),
        (f"{{{{convert|{'9' * 5000}|km|mi}}}}", f"{'9' * 5000} kilometres"),
    ],
    ids=["digit", "month", "long month", "long number"],
)
def test_what_is_no_number_to_python_is_shown_as_it_is(wikitext, expected):
    assert EXTRACT["en"](wikitext) == expected


def test_sentences_with_holes_are_counted_by_kind_and_kept_where_asked():
    wikitext = (
        r"It <math>\frac{1}{2}</math> is. He {{d}} is {{f}}. We <x>i</x> are. <o:p>A</o:p> is. The {{IPA|/l/}} is. End."
    )
    counts = Counter[str]()
    assert Extractor("en").text(wikitext, counts) == "End."
    lack = ("a formula", "a template", "a tag", "a pronunciation")
    left_out = {f"sentences left out that lack {kind}": 1 + (kind == "a tag") for kind in lack}
    assert counts == left_out | {"unknown tags": 2}
    assert Extractor("en", keep=True).text(wikitext) == "It is. He is . We are. is. The is. End."


@pytest.mark.parametrize(
    ("language", "wikitext", "expected"),
    [
        ("ja", "人は{{x}}で。{{y|本}}です。町{{要出典}}は{{y|a}}。{{要出典|範囲=新}}。本{{誰|d=x}}。", "新。本。"),
        ("ja", "「人だ！」本は{{x}}で。「町」。人だ！本は{{x}}で。町だ！", "「人だ！」「町」。人だ！町だ！"),
        ("zh", "柏林（{{IPA|x}}）是首都。面积{{x}}。", "柏林是首都。"),
        ("de", "Berlin hat {{Einwohner|x}} Einwohner. Die Stadt{{Anm|1}} ist alt.", "Die Stadt ist alt."),
        ("ru", "Берлин ({{IPA|x}}) — столица{{нет АИ}}. В нём {{x}} жителей.", "Берлин — столица."),
    ],
)
def test_holes_are_found_in_scripts_with_and_without_spaces(language, wikitext, expected):
    assert Extractor(language).text(wikitext) == expected


OUTSIDE = [
    "|x| is the distance of x from zero.",
    "!Kung, also called ǃXun = Ju, is a language.",
    "!Xoo is another one!!",
    "!!! is a rock band | from Sacramento.",
    "| and || are operators in C.",
    "||v|| is the norm of v.",
    "|a| + |b| = |c| where a is a number.",
    "!important || is a rule!!",
    "|-shaped beams are of steel.",
    "|+5| is five.",
]


@pytest.mark.parametrize("paragraph", OUTSIDE)
@pytest.mark.parametrize(
    "around",
    [
        "%s",
        "Before.\n\n%s\n\nAfter.",
        "== H ==\n%s\n\n== K ==\n{{head}}\n|-\n| gone\n|}",
        "{|\n| gone\n|}\n%s",
        "{{head}}\n|-\n| gone || gone\n|}\n%s\n\nAfter.",
        "{{head}}\n|-\n| gone\n{{end}}\n\nAfter.\n\n%s",
        "\n\n%s\n\n{|\n! gone\n|}",
        "* List.\n\n%s",
    ],
)
def test_a_paragraph_may_begin_like_a_cell_outside_tables(paragraph, around):
    found = EXTRACT["en"](around % paragraph)
    assert paragraph in found
    assert "gone" not in found


@pytest.mark.parametrize("cell", ["| gone", "! gone !! gone", "| gone || gone", "! a=b | gone"])
@pytest.mark.parametrize(
    "table",
    [
        "{{head}}\n|-\n%s\n|}\n",
        "{{head}}\n%s\n|-\n|}\n",
        "{{head}}\n%s\n|}\n",
        "{|\n%s\n",
        '{| class="x"\n|-\n%s\n\n%s\n== H ==\n',
        "{{head}}\n|+ Caption\n%s\n{{end}}\n",
        "{{Infobox\n| name = gone\n%s\n",
        "{{head}}\n! style=x | gone\n%s\n{{end}}\n",
    ],
)
def test_cells_of_tables_that_templates_open_or_close_are_dropped(cell, table):
    found = EXTRACT["en"](table.replace("%s", cell) + "\nAfter the table.")
    assert "gone" not in found
    assert found.endswith("After the table.")


def test_local_names_of_namespaces_are_known():
    extract = Extractor("ltg", files="Fails", categories="Kategoreja").text
    assert extract("[[Fails:A.jpg|thumb|b]][[Kategoreja:C]] D.") == "D."


@pytest.mark.parametrize("wikitext", ["#REDIRECT [[A]]", " #redirect: [[A]]", "#WEITERLEITUNG [[A]]", "#重定向 [[A]]"])
def test_redirects_are_known_by_their_text(wikitext):
    assert Extractor().is_redirect(wikitext)
    assert not Extractor().is_redirect("#first [[A]]")


WORDS = (
    '{{ }} {{{ }}} {| |} { } -{ }- | = " [[ ]] [ ] File: http:// <ref> </ref> <ref/> <!-- --> <nowiki> </nowiki> '
    "<math> </math> <table> </table> <br> <poem> </poem> '' ''' == &amp; __TOC__ a é 字"
)
TOKENS = st.sampled_from([*WORDS.split(), "\n", "\n{|", "\n|}", "\n==", "\n*", "\n\n", " b ", "\u2003"])


@given(st.lists(TOKENS, max_size=80).map("".join), st.sampled_from(["en", "zh"]))
def test_any_bracket_soup_gives_clean_lines(soup, language):
    text = EXTRACT[language](soup)
    assert "\r" not in text
    for line in text.split("\n") if text else []:
        assert line == line.strip()
        assert line


def nested(inner):
    body = st.lists(inner, max_size=4).map("".join)
    forms = ["{{x|%s}}", "\n{|\n| %s\n|}\n", "[[x|%s]]", "[[File:x|%s]]", "<ref>%s</ref>", "'''%s'''"]
    return st.builds(lambda form, text: form % text, st.sampled_from(forms), body)


BALANCED = st.recursive(st.sampled_from(["word ", "\n\n", "é, ", "\n* ", "| "]), nested)


@given(st.lists(BALANCED, max_size=6).map("".join))
def test_balanced_markup_leaves_nothing_of_itself(wikitext):
    text = EXTRACT["en"](wikitext)
    assert not re.search(r"\{\{|\}\}|\{\||\|\}|\[\[|\]\]|</?ref", text), text


PLAIN_SOUP = (
    "{{ }} [[ ]] [[a| <ref> <math> <!-- -{ < {{a|[[b| & = [[File: __A <table><ref> {{{a| |}} {{lang| "
    "{{quote|[[a| {{nowrap|a|b= {{lang|a|{{nowrap| {{convert|1|-| {{x}}a a{{x}} ({{x}} <x> <x></x> <math>\\y</math>"
)
SPACED = ["\n{|", "\n|}", "''' a", "[http://a ", "\n==a", "( ", "{{a}} {{", '<ref name="', "a'''b ''", "  ", "{|\n{{"]
SOUP = [*PLAIN_SOUP.split(), *SPACED, "\n\n:", "= a ", "<ref a", "[[a]] [["]


@pytest.mark.parametrize("piece", SOUP)
@pytest.mark.parametrize("tail", ["", "}}", "]]"])
def test_time_is_linear_in_any_repeated_piece(piece, tail):
    def seconds(characters):
        count = characters // len(piece + tail)
        return _timed(EXTRACT["zh"], piece * count + tail * count)

    # 8 times the text; quadratic would be 64. Other load slows a try down: one that is quick is proof.
    small = (seconds(20_000) for _ in range(6))
    assert any((large := seconds(160_000)) < 0.4 or large < 24 * min(next(small), next(small)) for _ in range(3))


def _timed(function, text):
    start = time.process_time()
    function(text)
    return time.process_time() - start


# The oracle: mwparserfromhell's tree, walked for what is read as prose. Which sections and headings
# count as prose is our own rule, held by the golden pairs, so that both sides share it here.
# (The Latgalian dump is left out: the oracle gives tables in unclosed tags as prose, 2.7 % of all.)


DROPPED_TAGS = frozenset(
    ("ref", "references", "table", "gallery", "math", "timeline", "pre", "source", "includeonly", "syntaxhighlight")
)
DROPPED_LINKS = frozenset(namespaces.FILES + namespaces.CATEGORIES + namespaces.LANGUAGES)


class Oracle:
    """The prose of one language's wikitext, by mwparserfromhell's tree.

    Which templates show text is our own table; their arguments are the parser's.
    """

    def __init__(self, language):
        self._templates = Templates(language)

    def text(self, wikitext):
        import mwparserfromhell

        code = mwparserfromhell.parse(remove_link_sections("\n" + wikitext))
        return paragraphs(self._walk(code))

    def _walk(self, code):
        return "".join(map(self._prose, code.nodes))

    def _prose(self, node):
        from mwparserfromhell import nodes

        match node:
            case nodes.Text():
                return str(node.value)
            case nodes.Wikilink():
                prefix, colon, _ = str(node.title).partition(":")
                if colon and prefix.strip().lower() in DROPPED_LINKS:
                    return ""
                return self._walk(node.title if node.text is None else node.text)
            case nodes.ExternalLink():
                label = node.title if node.brackets else node.url
                return "" if label is None else self._walk(label)
            case nodes.Heading():
                marks = "=" * node.level
                return f"\n{marks}{self._walk(node.title)}{marks}\n"
            case nodes.HTMLEntity():
                return str(node.normalize())
            case nodes.Tag():
                return self._tag(node)
            case nodes.Template():
                arguments = {str(p.name).strip(): self._walk(p.value).strip() for p in node.params}
                return self._templates.shown(self._walk(node.name), arguments)
        return ""  # parameters, comments

    def _tag(self, node):
        name = str(node.tag).strip().lower()
        if name in DROPPED_TAGS:
            return ""
        if name in ("br", "li", "dt", "dd", "hr"):
            return " " if name == "br" else "\n"
        space = " " if name in ("div", "p", "center", "blockquote") else ""
        contents = node.contents
        return space + ("" if contents is None else self._walk(contents)) + space


def trigrams(text):
    words = re.findall(r"\w+", re.sub("[\xad\u200b\u200e\u200f]", "", text))
    return Counter(zip(words, words[1:], words[2:], strict=False))


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name",
    [
        "enwiki-201605-p10p30302-shortened.xml.bz2",
        "enwiki-table-markup.xml.bz2",
        "bgwiki-latest-pages-articles-shortened.xml.bz2",
        "nlwiki-20140927-pages-articles-sample.xml",
        "viwiki-20240701-excerpt.xml",
        *(f"minidumps/{code}.xml.bz2" for code in ("ar", "de", "fr", "hi", "ja", "ko", "ru", "th")),
    ],
)
def test_trigrams_agree_with_the_oracle(shared_data, name):
    path = shared_data / "wiki_xml" / name
    language = re.match(r"(?:minidumps/)?([a-z]{2})", name)[1]
    extract, oracle = Extractor(language, keep=True), Oracle(language)
    shared = ours = theirs = 0
    for page in wikipedia.pages(CompressedFile(path), FileRange(str(path), 0, path.stat().st_size), ReadLog()):
        if page.namespace == 0 and not page.redirect and not extract.is_redirect(page.text):
            mine, its = trigrams(extract.text(page.text)), trigrams(oracle.text(page.text))
            shared += (mine & its).total()
            ours += mine.total()
            theirs += its.total()
    print(f"{name}: precision {shared / ours:.4f}, recall {shared / theirs:.4f}")
    assert shared / ours >= 0.99, "precision"
    assert shared / theirs >= 0.99, "recall"


@pytest.mark.parametrize(
    "table", ["{{{!}} class=x\n{{!}}-\n{{!}} a\n{{!}}}", "{{Table start}}\n|-\n| a || b\n|-\n! h\n{{Table end}}"]
)
def test_tables_of_templates_are_tables(table):
    assert Extractor("en").text(f"Before.\n{table}\nAfter.\n\n! Note this.") == "Before.\nAfter.\n! Note this."
