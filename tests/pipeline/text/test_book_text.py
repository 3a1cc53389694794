"""The text of one book."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text import book_text
from pipeline.text.book_text import WRAP, parse, plain
from pipeline.text.markdown_text import unmarked


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_hard_wrapped_lines_are_joined_to_paragraphs(newline):
    lines = ["It was the best of times,", "it was the worst of times.", "", "", "He came.", ""]
    text = parse(newline.join(lines)).text
    assert text == "It was the best of times, it was the worst of times.\nHe came."


def test_lines_that_are_paragraphs_already_stay_apart():
    paragraphs = ["Many words. " * WRAP, "Yes.", "No."]
    assert parse("\n".join(paragraphs)).text.split("\n")[1:] == ["Yes.", "No."]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Title: Emma\nAuthor: Jane Austen\nYear: 1815\n\nEmma Woodhouse", "Emma Woodhouse"),
        ("Author: I speak.\n\nTitle: I said so.\n\nPrologue.", "Title: I said so.\nPrologue."),
        ("Author: I speak.\nAuthor: I spoke.\n\nPrologue.", "Author: I spoke.\nPrologue."),
        ("Prologue.\n\nAuthor: I speak.", "Prologue.\nAuthor: I speak."),
        ("# Title: The Black Cat\r\n\r\n## Author: Poe\r\n\r\n-------\r\nFor the most wild,", "For the most wild,"),
        ("# Walden\n\n## Economy\n\nWhen I wrote", "Walden\nEconomy\nWhen I wrote"),
    ],
)
def test_only_facts_at_the_beginning_are_a_header(text, kept):
    assert parse(text).text == kept


CORRECT = "Lungo la via: ”Å”, ”Ã” e ”Â”.|Han sa «Å».|Å\xa0være på sjø|«AMANHû|ÉPOCA DA MANHÃ…|AMANHÖnão"
CORRECT += "|NÃO, IR\xadMÃ\xadZI\xadNHA|Lado de 12 Å³ às três|Larsen, P.-Å. – «P.-Å» – er født"
CORRECT = CORRECT.split("|")
WRITTEN = ["20 °C", "voilà, “l’œuvre”", "Fin.\xa0Début ¿", "Œuvre — ñ", "à", "« Å »", "“ÉCLAIR”, Ó", "MANHÃ… às"]
LATIN_1 = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}  # not in cp1252


@pytest.mark.parametrize("text", CORRECT)
def test_a_capital_with_an_accent_before_punctuation_stays(text):
    book = parse(text)
    assert (book.text, book.repaired) == (plain(text), False)


@pytest.mark.parametrize("text", WRITTEN)
def test_text_in_the_wrong_encoding_throughout_is_put_right(text):
    raw = text.encode()
    cp1252 = "".join(LATIN_1.get(byte) or bytes([byte]).decode("cp1252") for byte in raw)
    for misread in (cp1252, raw.decode("latin-1")):
        book = parse(misread)
        assert (book.text, book.repaired) == (plain(text), True)


def test_one_letter_that_is_certainly_wrong_decides_for_all():
    assert parse("«Æ», cafÃ©, Ã\xa0 la carte").text == "«Æ», café, à la carte"
    assert parse("«Æ», voilÃ\xa0, Ã\xad").text == "«Æ», voilà, í"
    assert parse("«Æ».Â\xa0Here").text == "«Æ». Here"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("彼はたべ\nます。カタカ\nナです。", "彼はたべます。カタカナです。"),
        ("ภาษา\nไทย", "ภาษาไทย"),
        ("他说\nHello\nworld\n好。", "他说 Hello world 好。"),
        ("한국어\n문장", "한국어 문장"),
        ("ភាសា\nខ្មែរ", "ភាសាខ្មែរ"),
        ("「はい」\n「いいえ」", "「はい」「いいえ」"),
        ("བོད་\nཡིག", "བོད་ཡིག"),
        ("你好——\n世界……\n再见", "你好——世界……再见"),
        ("a word —\nanother", "a word — another"),
        ("他说：“你\n好。”然后\n“走了”\n。", "他说：“你好。”然后“走了”。"),
        ("he said\n“go”", "he said “go”"),
        ("a jum\xad\nping fox", "a jum\xadping fox"),
        ("a well-\nknown fox", "a well-known fox"),
        ("a well- \n  known fox", "a well-known fox"),
        ("he left--\nand died", "he left-- and died"),
        ("in 1914-\n18", "in 1914- 18"),
        ("\u3000\u3000你好\n世界。\n\u3000\u3000再见\n朋友。", "你好世界。\n再见朋友。"),
        ("Buy:\n* a big\n  loaf\n* milk", "Buy:\n* a big loaf\n* milk"),
        ("- Go!\n2. No, not\nnow.", "- Go!\n2. No, not now."),
        ("the man\n- who was tall -\nsaid", "the man - who was tall - said"),
        ("it was May\n12. The", "it was May 12. The"),
    ],
)
def test_lines_are_joined_as_their_script_is_written(lines, text):
    assert (book_text.parse(lines).text, book_text.unwrapped(lines, Counter())) == (text, text)


@pytest.mark.parametrize("before", ["", "COPYRIGHTED "])
@pytest.mark.parametrize("word", ["THE", "THIS"])
@pytest.mark.parametrize("last", ["", "End of Project Gutenberg's X,\nby Y\n\n"])
def test_a_book_ends_at_its_licence_and_not_at_its_own_words(before, word, last):
    mark = f"OF {word} {before}PROJECT GUTENBERG EBOOK X ***"
    book = "End of Project Gutenberg was a phrase.\n\nIt was night.\n\nA.\n\nB.\n\nC."
    text = f"Title: X\n\n*** START {mark}\n\n{book}\n\n{last}*** END {mark}\n\nLicence."
    assert book_text.parse(text).text == book.replace("\n\n", "\n")


STARS = "*** START OF THE PROJECT GUTENBERG EBOOK X ***"
FRAMES = {
    "two stars": ("** START OF THE PROJECT GUTENBERG EBOOK X **", "** END OF THE PROJECT GUTENBERG EBOOK X **"),
    "no article": ("***START OF PROJECT GUTENBERG ETEXT X***", "***END OF PROJECT GUTENBERG ETEXT X***"),
    "indented": (f"  {STARS}", "  *** END OF THE PROJECT GUTENBERG EBOOK X ***"),
    "no start": ("", "*** END OF THE PROJECT GUTENBERG EBOOK X ***"),
    "small print": ("*END*THE SMALL PRINT! FOR PUBLIC DOMAIN*Ver.04.29.93*END*", "End of this Project Gutenberg Etext"),
    "small print last": (STARS, "***START**THE SMALL PRINT!**FOR EBOOKS**START***"),
    "the end": (STARS, "The End of Project Gutenberg's X"),
    "German": (STARS, "Ende dieses Projekt Gutenberg Etextes X"),
    "full licence": (STARS, "*** START: FULL LICENSE ***"),
    "its title": (STARS, "THE FULL PROJECT GUTENBERG™ LICENSE"),
    "Canada": (
        STARS.replace("PROJECT GUTENBERG", "DISTRIBUTED PROOFREADERS CANADA"),
        "***END OF DISTRIBUTED PROOFREADERS",
    ),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_a_licence_of_any_shape_goes(frame):
    start, end = FRAMES[frame]
    assert parse(f"{start}\n\nIt was\nnight.\n\nDawn.\n\n{end}\n\nRedistribution\n").text == "It was night.\nDawn."


def test_an_old_book_ends_at_the_last_line_that_says_so():
    text = "*END*THE SMALL PRINT! x*END*\n\nA.\n\nEnd of The Project Gutenberg Etext of X\n\nMore."
    assert book_text.parse(text).text == "A."


@pytest.mark.parametrize("frame", [name for name, (start, _) in FRAMES.items() if start])
@pytest.mark.parametrize("length", [1, 1500])
def test_all_books_in_one_file_are_kept(frame, length):
    start, end = FRAMES[frame]
    books = [f"{name}\n\nIt was night." + "\n\nDawn." * length for name in ("Emma", "Persuasion", "Sanditon")]
    text = "".join(f"Title: X\n\n{start}\n\n{book}\n\n{end}\n\nRedistribution\n\n" for book in books)
    assert parse(text).text == "\n".join(books).replace("\n\n", "\n")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("by the win¬\ndow. In the news⸗\npaper", "by the window. In the newspaper"),
        ("the har-\nbour. A harbour.", "the harbour. A harbour."),
        ("the har‐\nbour. A harbour.", "the harbour. A harbour."),
        ("a well-\nknown man, black-\nand-white", "a well-known man, black-and-white"),
        ("Ein-\nund Ausgang, Vor-\nunder, direct-\nor director", "Ein- und Ausgang, Vor-under, director director"),
        ("a re-\nform, re-form and reform", "a re-form, re-form and reform"),
    ],
)
def test_a_word_that_a_line_end_divides_is_whole(lines, text):
    book = parse(lines)
    joined = lines.count("¬") + lines.count("⸗") + ("har" in text or "direct" in text)
    assert (book.text, book.joined) == (text, joined)


@pytest.mark.parametrize(
    ("marked", "text", "counts"),
    [
        ("The [Pg 12]keeper[Pg 13] slept{14} well.", "The keeper slept well.", {"numbers of pages": 3}),
        ("[PAGE xii] The keeper slept. [Sidenote: He snored.]", "The keeper slept.",
         {"numbers of pages": 1, "notes in the margin": 1}),
        ("=bold= ~old~ #red# +big+ x=y=z, a = b, +1 C+ ++i, i++", "bold old red big x=y=z, a = b, +1 C+ ++i, i++", {}),
        ("M^{r} B saw{9} 10^{6} m of H_{2}O.", "Mr B saw 10^6 m of H2O.", {"numbers of pages": 1}),
        ("_Enter_ *Hamlet*, **sad** [here](http://a.b) ![x](y.png)", "Enter Hamlet, sad here", {}),
        ("a snake_case_x and 2 * 3 * 4\n\n___ of Chantilly", "a snake_case_x and 2 * 3 * 4\n___ of Chantilly", {}),
        ("[Illustration: A [lamp]\nat night]\n\nNight.", "Night.", {"illustrations": 1}),
        ("Ships.[1]\n\n[Footnote 1: Or boats, as [some] say\nin the north.]", "Ships.",
         {"notes": 1, "numbers of notes": 1}),
        ("+-----+\n| Transcriber's Note: x |\n+-----+\n\nText.", "Text.", {"notes of the transcriber": 1}),
        ("+-----+\n| A letter |\n+-----+", "+-----+ | A letter | +-----+", {}),
        ("｜頓《とん》と《史記》を［＃ここ］読む。\n底本：青空\n入力：A", "頓と《史記》を読む。",
         {"notes of the transcriber": 2, "marks of readings": 2}),
        ("Un.[1] [Ilustración]\n\n[Nota 1: Deux.]", "Un.", {"notes": 1, "numbers of notes": 1, "illustrations": 1}),
        ("I. The Lamp . . . . . . 1\n\nText.", "Text.", {"lines of contents": 1}),
        ("He said [1] and wept...", "He said [1] and wept...", {}),
    ],
)  # fmt: skip
def test_what_an_edition_adds_is_left_out_and_counted(marked, text, counts):
    book = parse(marked)
    assert (book.text, book.passed) == (text, counts)


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("+++\na\n+++\n---\n\n[A]: No.\nL<T> `<p> **e**` &reg 5<sup>5</sup>", "[A]: No. L<T> <p> **e** &reg 5^5"),
        ("+ A [c][1]\\\n d\n+ [x] <ab:c> {#f}\n\n***\n1999. E\n\n[g]: G\n[1]: a", "A c d\nab:c\n1999. E"),
        ("#   V #\n\n    so _it_\nis, ``he''\n\n    said.\n***\n1\n1 | 2\n--|--\n", "V\nso it is, ``he''\nsaid.\n1"),
        ("1999. It\n<pre>\n2002. So<BR/>\n</pre>\n=x[[1]]= is {...}", "1999. It\n2002. So\n=x[[1]]= is {...}"),
        ("[C]({{< r \"c\" >}})<br>5%% [of]({{ s.b }}/b)\nimport is 'a' 6%%%%b%%", "C 5%% of import is 'a' 6%%"),
        ("重**「要」**な\n[[a|言葉]]と`x`。![[p.png]]\n\n> [!note] Von\n> _**R**_", "重「要」な言葉とx。\nVon R"),
        ("<Tabs>\n<Tab b>\n    ```js\n    <p>\n    ```\n    *<unk>* in [a](b).\n</Tab>\n</Tabs>", "<unk> in a."),
        ("{:.note .a}\n" + 50 * "so " + "it\nends.\n- a  \n  b\n", 50 * "so " + "it ends.\na b"),
        (":::tip Go\nSee {ref}`it <a>`{% b %}.\n:::\n\n[TOC]\n\n{{< c >}}\nimport F from 'f';", "See it."),
    ],
)  # fmt: skip
def test_of_markdown_the_prose_is_read(marked, text):
    assert parse(marked, unmarked).text == text


BETWEEN = "\n|\n\n|<br>|  \n|\\\n|\n- |\n> |\n    |\n1. |\n1999. |\n# |\n***\n|\n\n<div>\n\n| <T> | `<p>` |\n</b>\n"


@given(st.lists(st.sampled_from(BETWEEN.split("|")), max_size=30))
def test_words_of_markdown_stay_apart_and_in_order(between):
    book = parse("".join(f"x{number}{mark}" for number, mark in enumerate(between)), unmarked)
    assert re.findall(r"x\w+", book.text) == [f"x{number}" for number in range(len(between))]


def test_what_is_no_prose_of_markdown_is_counted():
    parts = {"front matter": "---\nt:\n- a\n---\n", "blocks of code": "~~~\n#\n\n~~~\n", "lines of tables": "| a |\n"}
    parts |= {"tables": "a | b\n--- | :-:\n1 | 2\n\n", "notes": "[^1]: A note\n\n    of two.\n\n"}
    assert parse("".join([*parts.values(), "T[^1]"]), unmarked).passed == dict.fromkeys([*parts, "numbers of notes"], 1)
