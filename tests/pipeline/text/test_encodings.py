"""Bytes become text in the encoding that they were written in."""

import bz2
import io
import random
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text import encodings
from pipeline.text.encodings import Decoded, candidates, decode, detect, fault, is_binary, wide

TEXTS = {
    "en": "“Déjà vu” – he said, and the naïve façade fell.",
    "ru": "Москва — столица России, город федерального значения. Население более двенадцати "
    "миллионов человек. Это самый крупный по населению город страны.",
    "zh": "北京是中华人民共和国的首都,是全国的政治中心、文化中心。这座城市有三千多年的历史。",
    "ja": "東京は日本の首都であり、世界最大の都市のひとつです。人口はおよそ千四百万人です。",
    "ko": "서울은 대한민국의 수도이자 최대 도시이다. 한강이 도시를 가로질러 흐른다.",
    "pl": "Zażółć gęślą jaźń. Wisła płynie przez Kraków i Warszawę, a później wpada do Bałtyku.",
    "el": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας. Άγιος είναι και η μεγαλύτερη πόλη της χώρας.",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "bg": "Старият пазач излезе на верандата. Снегът падаше тихо.",
    "uk": "Старий наглядач вийшов на ганок. Їжак спав під ялинкою, і сніг падав на неї.",
    "sr": "Стари чувар је изашао на трем. Снег је падао тихо, ђаци су ћутали.",
    "hr": "Stari čuvar je izašao na trem. Snijeg je padao tiho, đaci su šutjeli.",
    "lv": "Vecais sargs izgāja uz lieveņa. Sniegs klusi krita uz egles, ģērbies šķīvis.",
    "tr": "Yaşlı bekçi verandaya çıktı. Kar sessizce ağaçların üzerine yağıyordu.",
    "th": "ยามเฒ่าเดินออกมาที่ระเบียง หิมะตกลงบนต้นสนอย่างเงียบ ๆ",
    "fa": "نگهبان پیر به ایوان رفت. برف آرام روی درخت می بارید.",
    "ar": "خرج الحارس العجوز إلى الشرفة. كان الثلج يتساقط بهدوء على الشجرة.",
    "he": "השומר הזקן יצא אל המרפסת. השלג ירד בשקט על העץ.",
}


@pytest.mark.parametrize(("language", "codec"), [(name, codec) for name in TEXTS for codec in candidates(name)])
def test_the_encodings_of_a_language_are_found_out(language, codec):
    text = TEXTS[language]
    if codec == "big5hkscs":
        text = "臺北是中華民國的首都,也是全國的政治、文化與經濟中心。這座城市有許多博物館。"
    for raw in (text.encode(codec, "ignore"), text.encode(codec, "ignore") * 40):
        decoded = decode(raw, language)
        assert (decoded.text, decoded.whole) == (raw.decode(codec), True)


WESTERN = {
    "en": "“I can’t,” she said – “we don’t have any.” He’d left the café at 5.\nThe “best” of it… isn’t here.",
    "de": "Für die Übung müssen „schöne“ Äpfel süß schmecken. Das Öl fließt über die Straße – täglich.",
    "fr": "L’été dernier, «\xa0le garçon\xa0» était déjà très âgé où l’on naît… À bientôt, cœur\xa0!",
    "es": "¿Cuándo llegó el niño? ¡Mañana será otro día! La cigüeña voló más allá del «corazón».",
    "pt": "A ação não é só atenção: três irmãs põem pão à mesa — “você já está aí”.",
    "it": "Perché la città è così? Però più là c’è un caffè, e la virtù “non ha età”.",
    "sv": "Åsa gick över ön på våren. Där fanns små träd, och älgen åt gräs – ”så är det”.",
    "da": "På øen er der små æbler. Ålen svømmer, og børnene spiser rødgrød med fløde.",
    "ca": "L’ànima del país és això: qüestió de paciència… i “força”.",
}


@pytest.mark.parametrize("codec", ["cp1252", "mac_roman", "cp850"])
@pytest.mark.parametrize("language", WESTERN)
def test_western_text_of_other_machines_is_read(language, codec):
    raw = WESTERN[language].encode(codec, "ignore")
    assert decode(raw, language).text == raw.decode(codec)


@pytest.mark.parametrize(
    "text", ["It’s “fine”.", "He left – late.", "‘No,’ he said.", "Well… yes.", "£5 or €6", "Raúl left."]
)
def test_a_few_marks_or_a_name_do_not_hide_the_usual_encoding(text):
    assert [decode(text.encode("cp1252"), language).text for language in ("en", "cy")] == [text] * 2


CODECS = "cp1251 koi8_r cp1253 cp1256 cp1255 cp874 gb18030 cp932 cp949"


@pytest.mark.parametrize("codec", CODECS.split())
def test_another_script_is_not_taken_for_western_letters(codec):
    language = next(name for name in TEXTS if codec in candidates(name))
    raw = (TEXTS[language] * 2).encode(codec, "ignore")
    found = decode(raw, "en")
    assert "set corpus.language" in str(fault(raw, found.text, found.encoding))
    own = decode(raw, language)
    assert fault(raw, own.text, own.encoding) is None
    assert fault(raw, raw.decode("latin-1")) is None, "stated"


@pytest.mark.parametrize(
    ("language", "codec"), [("ja", "iso2022_jp"), ("ko", "iso2022_kr"), ("zh", "hz"), ("en", "iso2022_jp")]
)
def test_letters_in_seven_bits_are_read(language, codec):
    text = TEXTS["ja" if language == "en" else language] + "\nOne ~ two.\n"
    assert decode(text.encode(codec), language).text == text
    assert decode(b"~{ is no letter, $B neither \x1b[0m", language).encoding == "utf-8"


@pytest.mark.parametrize(
    ("said", "raw", "text"),
    [
        ("latin-1", b"\x93smart\x94 caf\xe9 \x96 don\x92t", "“smart” café – don’t"),
        ("gb2312", "镕".encode("gb18030"), "镕"),
        ("shift_jis", "①".encode("cp932"), "①"),
        ("euc_kr", "똠".encode("cp949"), "똠"),
        ("iso8859-9", b"\x93\xfe\x94", "“ş”"),
    ],
)
def test_what_is_meant_by_an_encoding_is_read(said, raw, text):
    assert decode(raw, "en", said) == Decoded(text, encodings.meant(said), True)


@pytest.mark.parametrize(("language", "codec"), [(name, codec) for name in TEXTS for codec in candidates(name)])
@pytest.mark.parametrize("pattern", ["ou", "uooo", "oau" * 3, "uuo", "u" * 20 + "o"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_no_line_in_another_encoding_changes_how_the_others_are_read(language, codec, pattern, end):
    old = TEXTS[language].encode(codec, "ignore")
    if detect(old, language) != codec:
        pytest.skip("the text has too few of the letters of this encoding")
    lines = {"o": old, "u": TEXTS[language].encode(), "a": b"plain"}
    decoded = decode(end.encode().join(lines[one] for one in pattern), language)
    wanted = {"o": old.decode(codec), "u": TEXTS[language], "a": "plain"}
    assert decoded.text == end.join(wanted[one] for one in pattern)
    assert decoded.whole


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("text", TEXTS.values())
def test_unicode_is_read_whatever_the_language(text, codec):
    mark = "\ufeff" if codec == "utf-16-le" else ""
    assert decode((mark + text).encode(codec), "el").text == text


@pytest.mark.parametrize("language", TEXTS)
def test_utf8_with_a_torn_letter_is_utf8(language):
    text = TEXTS[language] * 3
    raw = text.encode()
    last = max(at for at, byte in enumerate(raw) if byte > 0x7F)
    decoded = decode(raw[:last] + raw[last + 1 :], language)
    assert (decoded.encoding, decoded.whole) == ("utf-8", False)
    intact = len(raw[:last].decode(errors="ignore"))
    assert decoded.text == text[:intact] + "\ufffd" + text[intact + 1 :]


def test_the_end_of_the_beginning_of_a_file_is_not_torn():
    raw = TEXTS["zh"].encode()
    assert detect(raw[:-1], "zh", final=False) == "utf-8"
    assert not encodings.is_torn_utf8("“".encode()[:-1] + b" and more")
    replaced = "\ufffd".encode() * 9  # letters that were lost before
    assert encodings.is_torn_utf8("Zürich".encode() + replaced + b" \xff")


@pytest.mark.shared_data
def test_real_lines_in_their_old_encodings_are_not_taken_for_utf8(shared_data):
    dumps = sorted((shared_data / "wiki_xml/minidumps").glob("*.bz2"))
    assert dumps
    for dump in dumps:
        language = dump.name.partition(".")[0]
        for line in bz2.decompress(dump.read_bytes()).decode().split("\n"):
            for codec in candidates(language):
                raw = line.encode(codec, "ignore")
                assert decode(raw, language).whole or decode(raw, language).encoding != "utf-8"


@given(st.binary(max_size=200), st.sampled_from(["en", "zh", "ru", "xx"]))
def test_any_bytes_are_some_text(raw, language):
    decoded = decode(raw, language)
    assert decoded.encoding != "cp1252" or len(decoded.text) == len(raw)
    assert decoded.whole or "\ufffd" in decoded.text


def test_a_page_in_another_cyrillic_encoding_than_it_declares_is_read_and_a_text_named():
    raw = TEXTS["bg"].encode("koi8_r")
    assert encodings.decode_page(b"<meta charset=windows-1251>" + raw, "bg", None).endswith(TEXTS["bg"])
    assert fault(raw, raw.decode("cp1251")) == encodings.SWAPPED
    assert all(fault(text.encode(), text) is None for text in (TEXTS["ru"], TEXTS["ru"].upper()))


def test_a_stated_encoding_is_taken_and_what_does_not_fit_is_said():
    assert decode(b"caf\xe9", "en", "cp1250").text == "café"
    decoded = decode(b"caf\xe9", "en", "utf-8")
    assert (decoded.text, decoded.whole) == ("caf\ufffd", False)


@pytest.mark.parametrize(
    ("text", "ends"), [("a\nb", "LF"), ("a", "LF"), ("a\r\nb\r\n", "CRLF"), ("a\rb", "CR"), ("a\rb\n", "LF")]
)
def test_line_ends_are_told_apart(text, ends):
    assert encodings.line_ends(text) == ends


def binary(raw, language="en", encoding=None):
    return is_binary(raw, decode(raw, language, encoding).text)


def test_programs_and_random_bytes_are_no_text():
    assert binary(Path(sys.executable).read_bytes()[:300_000])
    assert binary(random.Random(0).randbytes(10_000))
    assert binary(random.Random(1).randbytes(10_000), "ru", "koi8_r")
    assert binary(b"name\0size\0" * 100)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(__file__, "test.py")
        tar.add(__file__, "again.py")
    assert binary(archive.getvalue())


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=200))
def test_text_without_control_characters_is_not_binary(text):
    for codec in ("utf-8", "utf-16", "utf-32", "gb18030"):
        assert not binary(text.encode(codec), "zh", codec)


def test_a_few_stray_control_characters_and_padding_do_not_make_text_binary():
    assert not binary(b"\0Words\x01 of\x02 few letters.")
    assert not binary(b"A line that says something.\n" * 200 + b"\0" * 4096)
    assert not binary(b"N\bNA\bAM\bME\bE\x1b[0m\n" * 100, "en", "utf-8")
    assert not binary("北京是中华人民共和国的首都。\n".encode("iso2022_jp", "ignore") * 90)


WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
OTHERS = {
    "vi": "Tiếng Việt được viết bằng chữ Quốc ngữ. Ông nói vậy.",
    "th": "กรุงเทพมหานครเป็นเมืองหลวง ประเทศไทย",
    "hi": "दिल्ली भारत की राजधानी है। यह बड़ा शहर है।",
    "ar": "القاهرة عاصمة مصر، وهي مدينة كبيرة.",
    "he": "ירושלים היא עיר הבירה.",
    "am": "አዲስ አበባ የኢትዮጵያ ዋና ከተማ ናት።",
    "ta": "சென்னை தமிழ்நாட்டின் தலைநகரம் ஆகும்.",
    "gu": "અમદાવાદ ગુજરાતનું સૌથી મોટું શહેર છે.",
    "emoji": "Es ist schön 😀 heute 🚀.",
    "word": "szedł",
    "chinese": "今天。",
    "lines": "Groß\r\nMaß\r\n",
    "table": "a\t1\t2.0\nb\t3\t1001\n" * 30,
}


@pytest.mark.parametrize("codec", WIDE)
@pytest.mark.parametrize("text", [*TEXTS.values(), *OTHERS.values()], ids=[*TEXTS, *OTHERS])
@pytest.mark.parametrize("times", [1, 900])
@pytest.mark.parametrize("language", ["en", "ru", "zh"])
def test_wide_text_needs_no_mark(text, codec, times, language):
    raw = (text * times).encode(codec)
    decoded = decode(raw, language)
    assert (decoded.text, decoded.encoding, decoded.whole) == (text * times, codec, True)
    assert not is_binary(raw, decoded.text)
    if len(raw) > 16:
        assert detect(raw[: len(raw) // 8 * 8], language, final=False) == codec


@pytest.mark.parametrize("codec", WIDE)
@pytest.mark.parametrize("text", TEXTS.values())
def test_an_order_that_is_not_stated_is_found_out(text, codec):
    assert decode(text.encode(codec), "en", codec[:6]).text == text


@pytest.mark.parametrize("codec", ["utf-8", "cp1252", "gb18030", "cp932", "cp1251", "iso2022_jp"])
@given(st.lists(st.sampled_from([*TEXTS.values(), "a", "\n", "0 ", "\x1b[0m"]), max_size=9))
def test_other_text_is_not_taken_for_wide(codec, parts):
    assert wide("".join(parts).encode(codec, "ignore")) is None


@given(st.binary(max_size=3000))
def test_bytes_that_are_no_text_in_a_wide_encoding_are_not_read_as_one(raw):
    if (name := wide(raw)) is not None:
        text = decode(raw, "en").text
        assert text == raw.decode(name, "replace").removeprefix("\ufeff")
