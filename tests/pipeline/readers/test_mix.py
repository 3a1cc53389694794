"""Several corpora in one run, each with a weight."""

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers import mix as mixed
from tests.pipeline.readers import reading
from tests.support.refusals import refused
from tests.support.runs import configured


def part(path, weight=None, **more):
    path.write_text("\n\n".join(f"{path.stem} {n} says something." for n in range(1000)))
    return {"reader": "lines", "path": str(path), **more} | ({} if weight is None else {"weight": weight})


def read(parts, split_bytes=1 << 20, **options):
    corpus = CorpusConfig(name="mix", reader="mix", parts=parts, options=options)
    return reading.read(corpus, split_bytes)[0]


def total(found, name):
    return sum(d.copies for d in found if d.id.startswith(f"{name}: "))


def test_a_weight_says_how_often_documents_are_learnt_from(tmp_path):
    weights = {"a": 0.25, "b": None, "c": 2.5, "d": 0}
    found = read({name: part(tmp_path / f"{name}.txt", w) for name, w in weights.items()})
    assert abs(total(found, "a") - 250) < 60
    assert total(found, "b") == 1000
    assert abs(total(found, "c") - 2500) < 60
    assert ({d.copies for d in found if d.id.startswith("c: ")}, total(found, "d")) == ({2, 3}, 0)


def test_the_choice_is_a_function_of_text_and_seed_alone(tmp_path):
    parts = {"a": part(tmp_path / "a.txt", 0.5), "b": part(tmp_path / "b.txt", 1.5)}

    def chosen(found):
        return [(d.text, d.copies) for d in found]

    assert chosen(read(parts)) == chosen(read(dict(reversed(parts.items())), 700))
    assert chosen(read(parts)) != chosen(read(parts, seed=1))


def test_each_part_has_its_language_and_its_account(tmp_path):
    parts = {"zh": part(tmp_path / "z.txt", 0.5, language="zh"), "en": part(tmp_path / "e.txt")}
    found, tally = reading.read(CorpusConfig(name="mix", reader="mix", parts=parts))
    assert {d.language for d in found if d.id.startswith("zh")} == {"zh"}
    assert tally["zh: sampled out"] + tally.notes["zh: documents"] == 1000
    assert tally.notes["en: documents"] == 1000


LINES = {"reader": "lines", "path": "x"}
PARTS = {".reader": {"path": "x"}, ".paths": {"reader": "lines", "paths": "x"}, ".weight": LINES | {"weight": -1}}
PARTS |= {".files": {"reader": "lines", "files": [{"uri": "x"}]}, ".options.y": LINES | {"options": {"y": 1}}}
PARTS |= {".options": LINES | {"options": None}, ".language": LINES | {"language": False}}
PARTS |= {".mend": LINES | {"mend": "yes"}, "": "books"}
PARTS = [(part, f".a{key}") for key, part in PARTS.items()]
PARTS += [(LINES | {"reader": name}, ".a.reader") for name in ("scroll", "fields", "no.such", ["lines"])]
PARTS += [({"reader": "mix", "parts": {}}, ".a.reader"), (LINES | {"limit": "5KB"}, ".a.limit")]


@pytest.mark.parametrize(("parts", "key"), [({}, ""), *(({"a": part}, key) for part, key in PARTS)])
def test_mistakes_in_a_mix_name_the_key(parts, key):
    with refused(ConfigError, key=f"corpus.parts{key}") as caught:
        read(parts)
    assert str(caught.value).startswith(f"corpus.parts{key}")


def test_a_number_is_taken_for_a_text_where_one_is_wanted(tmp_path):
    (tmp_path / "a.txt").write_bytes("Москва".encode("cp866"))
    part = {"reader": "lines", "path": str(tmp_path / "a.txt"), "encoding": 866}
    assert read({"a": part})[0].text == "Москва"


def test_a_part_without_files_is_named(tmp_path):
    with refused(InputError, key="corpus.parts.a.path", value=str(tmp_path / "nowhere")):
        read({"a": {"reader": "lines", "path": str(tmp_path / "nowhere")}})


def test_parts_have_the_language_and_encoding_of_the_mix_unless_they_set_their_own(tmp_path):
    text = "Москва — столица России."
    for name, encoding in (("a", "koi8_r"), ("b", "cp1251"), ("c", "cp866")):
        (tmp_path / f"{name}.txt").write_bytes(text.encode(encoding, "replace"))
    parts = {
        "a": {"reader": "lines", "path": str(tmp_path / "a.txt")},
        "b": {"reader": "lines", "path": str(tmp_path / "b.txt"), "encoding": "cp1251"},
        "c": {"reader": "text", "path": str(tmp_path / "c.txt"), "encoding": None, "language": "de"},
    }
    corpus = CorpusConfig(name="mix", reader="mix", parts=parts, language="ru", encoding="koi8_r")
    found, _ = reading.read(corpus)
    assert [d.language for d in found] == ["ru", "ru", "de"]
    assert [d.text.replace("?", "—") for d in found[:2]] == [text, text]
    assert found[2].text != text  # detected, with the encodings of German


def composed(*words):
    return configured("prepare", "vocab=v", *words).corpus


def test_published_corpora_in_a_mix_have_its_language():
    words = ["+corpus=mix", "+corpus@corpus.parts.w=wiki", "+corpus@corpus.parts.s=simplewiki"]
    words += ["++corpus.parts.w.path=d.xml", "++corpus.parts.s.path=s.xml"]
    mix = composed(*words, "corpus.language=fr", "+corpus@corpus.parts.c=culturax")
    parts = {name: mixed.part_config(mix, name)[0] for name in mix.parts}
    assert {name: part.language for name, part in parts.items()} == {"w": "fr", "s": "en", "c": "fr"}
    assert (parts["w"].name, parts["c"].name) == ("frwiki", "culturax-fr")
    own = composed(*words, "corpus.language=fr", "++corpus.parts.w.language=de")
    assert (own.parts["w"]["language"], own.parts["w"]["name"]) == ("de", "dewiki")
    assert composed(*words).parts["w"]["language"] == "en"


def test_a_published_corpus_alone_has_the_language_that_is_set():
    assert composed("+corpus=wiki").name == "enwiki"
    assert composed("+corpus=wiki", "corpus.language=vi").name == "viwiki"
    assert composed("+corpus=culturax").path == "hf://datasets/uonlp/CulturaX@main/en/*.parquet"
