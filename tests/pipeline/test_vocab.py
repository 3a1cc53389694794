"""The vocabulary stage: the same bytes from run to run, BERT's layout, clear refusals."""

import bz2
import dataclasses
import gzip
import io
import json
import subprocess
import tarfile
import unicodedata
from string import ascii_lowercase

import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, normalizers
from transformers import AutoTokenizer

from model.huggingface.names import NAMES
from pipeline import vocab
from pipeline.config import CorpusConfig, VocabConfig
from pipeline.errors import ConfigError, InputError
from pipeline.storage.checksums import sha256
from pipeline.text import clean
from pipeline.tokenization import existing_vocabulary, known_models
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.support.refusals import refused

TEXT = "the cat sat on a mat and Émile saw 中文 words, running; [MASK] and [SEP] too."
WORDS = TEXT.split()


@pytest.fixture
def books(tmp_path):
    """A folder of small books that differ."""
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(8):
        order = [WORDS[(number * step) % len(WORDS)] for step in range(600)]
        (folder / f"book{number}.txt").write_text(" ".join(order) + f"\n\nrare{number}\n")
    return folder


def config(books, out, **settings):
    corpus = CorpusConfig(name="books", reader="books", path=str(books))
    return VocabConfig(corpus=corpus, source="none", out=str(out), **{"size": 120} | settings)


def make(books, out, **settings):
    out.mkdir(parents=True)
    return out, vocab.make(config(books, out, **settings), out)


def test_the_same_corpus_gives_the_same_bytes(books, tmp_path):
    first, second = (make(books, tmp_path / name)[0] for name in ("one", "two"))
    for name in ("vocab.txt", "tokenizer.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_both_files_hold_one_vocabulary(books, tmp_path):
    out, result = make(books, tmp_path / "out")
    entries = (out / "vocab.txt").read_text().splitlines()
    wordpiece = WordPiece.load(out)
    assert (entries[:5], wordpiece.vocab) == (list(SPECIAL), entries)
    assert wordpiece.sha256 == sha256(out / "tokenizer.json") == result.figures["sha256"]
    assert len(entries) == len(set(entries)) == result.figures["size"] <= 120
    assert "##]" not in entries, "special tokens in the text are no words"
    assert "mask" in entries
    encoded = Tokenizer.from_file(str(out / "tokenizer.json")).encode("The cat", "a Mat")
    assert encoded.tokens == ["[CLS]", "the", "cat", "[SEP]", "a", "mat", "[SEP]"]
    assert encoded.type_ids == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "has", "lacks"),
    [
        ({}, "emile", "Émile"),
        ({"lowercase": False}, "Émile", "emile"),
        ({"strip_accents": False}, "émile", "emile"),
        ({"split_chinese": False}, "中文", "Émile"),
    ],
)
def test_options_shape_the_words(books, tmp_path, settings, has, lacks):
    out, result = make(books, tmp_path / "out", size=200, **settings)
    entries = (out / "vocab.txt").read_text().splitlines()
    assert has in entries
    assert lacks not in entries
    assert result.figures["lowercase"] == settings.get("lowercase", True)
    kept = {"lowercase": "accents kept", "strip_accents": "accents kept"}
    shown = kept.get(next(iter(settings), ""), "accents stripped")
    assert result.summary.endswith(shown), "lost accents are not silent"
    assert ("lowercased" in result.summary) == result.figures["lowercase"]


DECOMPOSED = {
    "vi": "Nguồn gốc tiếng Việt được nhiều nhà nghiên cứu bàn luận từ lâu.",
    "ko": "서울은 대한민국의 수도이자 최대 도시이다. 한강이 도시를 가로질러 흐른다.",
    "ja": "がっこうで べんきょうを する。ピアノ",
    "hi": "क़लम और फ़िल्म",
    "el": "Ἡ πόλις ἐστὶν ἀρχαία",
    "he": "שָׁלוֹם",
    "cs": "Žluťoučký kůň",
}


@pytest.mark.parametrize("language", DECOMPOSED)
@pytest.mark.parametrize("settings", [{"lowercase": False}, {"strip_accents": False}, {}])
@pytest.mark.parametrize("learnt", ["NFC", "NFD"])
def test_a_letter_is_the_same_however_it_is_encoded(tmp_path, language, settings, learnt):
    folder = tmp_path / "in"
    folder.mkdir()
    text = DECOMPOSED[language]
    (folder / "a.txt").write_text(unicodedata.normalize(learnt, text) * 20)
    out, result = make(folder, tmp_path / "out", size=400, **settings)
    wordpiece = WordPiece.load(out)
    composed, decomposed = (
        wordpiece.encode([unicodedata.normalize(form, text)])[0].tolist() for form in ("NFC", "NFD")
    )
    assert composed == decomposed
    assert wordpiece.unk not in composed
    library = Tokenizer.from_file(str(out / "tokenizer.json"))
    found = library.encode(unicodedata.normalize("NFD", text), add_special_tokens=False)
    assert found.ids == composed
    assert ("warning" in result.summary) == (not settings and language != "ko"), "stripping an accent makes words equal"


THAI = "เมืองภูเขาประเทศพูดขานอนบ้านงานฝนน้ำดอกไม้หลับสีฟังตาเขียนกาไปเขียววันพ่อจานปลาครูข้าว" * 3


def test_what_a_vocabulary_does_not_know_is_said_in_characters(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(f"{THAI} {THAI[:40]}\n" * 20)
    out, result = make(folder, tmp_path / "out", size=400)
    assert result.figures["unknown_share"] == 0, "words of more than 100 letters are cut"
    ids, _ = WordPiece.load(out).encode([THAI])
    assert len(ids) < len(THAI) / 2
    old = WordPiece(build(WordPiece.load(out).vocab))
    old.encode([f"{THAI} {THAI[:40]}"])
    assert old.coverage.share == pytest.approx(len(THAI) / (len(THAI) + 41))
    assert old.coverage.warning is not None


def test_a_small_corpus_gives_fewer_entries_and_says_so(books, tmp_path):
    _, result = make(books, tmp_path / "out", size=30522)
    assert result.figures["size"] < 300
    assert "fewer than size=30,522" in result.summary


def test_figures_describe_the_sample(books, tmp_path):
    figures = make(books, tmp_path / "out", size=200)[1].figures
    texts = [clean.clean(file.read_text()) for file in sorted(books.iterdir())]
    assert (figures["documents"], figures["characters"]) == (len(texts), sum(map(len, texts)))
    assert figures["bytes"] == sum(len(text.encode()) for text in texts)
    assert figures["tokens_per_word"] >= 1
    assert figures["unknown_share"] == 0


def test_a_sample_is_spread_over_the_splits(books, monkeypatch):
    monkeypatch.setattr(vocab, "SPLIT_BYTES", 4000)
    monkeypatch.setattr(vocab, "LEAST_BYTES", 100)
    sample = vocab.sample_corpus(config(books, books, sample_bytes=2000))
    assert sample.splits > 3
    assert len(list(sample)) > 3
    assert 1990 <= sample.bytes <= 2000


@pytest.mark.parametrize("name", ["all.jsonl.gz", "all.jsonl.bz2", "all.tar.gz"])
def test_a_sample_of_a_file_that_cannot_be_cut_is_spread_over_it(tmp_path, name, monkeypatch):
    monkeypatch.setattr(vocab, "PIECE", 1000)
    texts = [f"{'early' if number < 500 else 'late'} {number} " * 20 for number in range(1000)]
    path = tmp_path / name
    if ".tar" in name:
        with tarfile.open(path, "w:gz") as archive:
            for number, text in enumerate(texts):
                member = tarfile.TarInfo(f"{number:04}.txt")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    else:
        pack = gzip.compress if name.endswith(".gz") else bz2.compress
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        path.write_bytes(pack(lines.encode()))
    reader = "text" if ".tar" in name else "jsonl"
    corpus = CorpusConfig(name="all", reader=reader, path=str(path))
    made = VocabConfig(corpus=corpus, source="none", out="out", sample_bytes=20_000)
    sample = list(vocab.sample_corpus(made))
    early = sum(text.startswith("early") for text in sample)
    assert 0.2 < early / len(sample) < 0.8
    assert sum(len(text.encode()) for text in sample) <= 20_000
    assert sample == list(vocab.sample_corpus(made)), "the draw is keyed"
    numbers = [int(text.split()[1]) for text in sample]
    assert numbers == sorted(set(numbers)), "in the order of the file, none twice"
    whole = list(vocab.sample_corpus(dataclasses.replace(made, sample_bytes=10**7)))
    assert whole == [text.strip() for text in texts], "a small file is read whole"


def test_no_text_is_an_error(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    with pytest.raises(InputError, match=f"1 document of {tmp_path}"):
        make(tmp_path, tmp_path / "out")
    with refused(ConfigError, "hf download owner/name --local-dir", key="existing"):
        make(tmp_path, tmp_path / "other", existing="owner/name")
    (tmp_path / "vocab.json").write_text('{"[UNK]": 0}')
    with refused(InputError, "vocab.txt", path=str(tmp_path / "vocab.json")):
        make(tmp_path, tmp_path / "third", existing=str(tmp_path))


@pytest.mark.parametrize(("entry", "lowercase"), [("word", True), ("Word", False)])
def test_an_existing_vocabulary_is_taken_as_it_is(tmp_path, entry, lowercase):
    file = tmp_path / "mine.txt"
    file.write_text("\n".join(["[unused0]", *SPECIAL, entry]) + "\n")
    out, result = make(tmp_path, tmp_path / "out", existing=str(file))
    assert (out / "vocab.txt").read_bytes() == file.read_bytes()
    again, same = make(tmp_path, tmp_path / "again", existing=str(out / "tokenizer.json"))
    assert result.figures["lowercase"] is same.figures["lowercase"] is lowercase
    for name in ("vocab.txt", "tokenizer.json"):
        assert (again / name).read_bytes() == (out / name).read_bytes()


def test_an_existing_tokenizer_with_unused_ids_has_no_vocab_txt(tmp_path):
    spec = json.loads(build([*SPECIAL, "the", "cat"]))
    spec["model"]["vocab"]["cat"] = 9
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(spec))
    out, result = make(tmp_path, tmp_path / "out", existing=str(file))
    assert [path.name for path in out.iterdir()] == ["tokenizer.json"]
    assert result.figures["size"] == WordPiece.load(out).size == 10


@pytest.mark.parametrize("described", [True, False])
def test_files_of_other_tokenizers_are_rewritten_by_the_command_that_is_told(tmp_path, monkeypatch, described):
    folder = tmp_path / "byte-level"
    folder.mkdir()
    byte_level = ByteLevelBPETokenizer()
    byte_level.train_from_iterator(["the lamp"], special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    byte_level.save_model(str(folder))
    if described:
        (folder / "config.json").write_text('{"model_type": "roberta"}')
    with refused(InputError, "from transformers import", path=str(folder / "vocab.json")) as caught:
        make(tmp_path, tmp_path / "out", existing=str(folder))
    monkeypatch.chdir(tmp_path)
    _, script, copies = str(caught.value).split('"')
    exec(script)
    subprocess.run(copies.partition(",")[0].removeprefix(" && "), shell=True, check=True)
    out, result = make(tmp_path, tmp_path / "rewritten", existing="NEW")
    assert all((out / name).read_bytes() == (folder / name).read_bytes() for name in ("vocab.json", "merges.txt"))
    assert result.figures["size"] == byte_level.get_vocab_size()
    (folder / "spm.model").write_bytes(b"\n\x0e")
    (folder / "spm.vocab").write_text("<unk>\t0\n▁the\t-3.1\ns\t-5\n")
    for name in ("spm.model", "spm.vocab"):
        with refused(InputError, "AutoTokenizer" if described else "tokenizer_config", path=str(folder / name)):
            make(tmp_path, tmp_path / name, existing=str(folder / name))


@pytest.mark.parametrize(("name", "renamed"), [("spm.model", True), ("sentencepiece.bpe.model", False)])
def test_a_model_of_sentencepiece_is_rewritten_by_a_transformers_that_cuts_bpe_as_it_does(tmp_path, name, renamed):
    (tmp_path / name).write_bytes(b"\n\x0e")
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    with refused(InputError, "OLD/bin/pip install 'transformers<5'", path=str(tmp_path / name)) as caught:
        make(tmp_path, tmp_path / "out", existing=str(tmp_path))
    assert (f"cp '{tmp_path / name}' '{tmp_path}/" in str(caught.value)) == renamed
    assert f"&& cp '{tmp_path}/sentencepiece.bpe.model' NEW, " in str(caught.value)


def test_a_tokenizer_without_words_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')  # no sentencepiece.bpe.model beside it
    AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "NEW")
    with refused((ConfigError, InputError), "no words", key="existing"):
        make(tmp_path, tmp_path / "out", existing=str(tmp_path / "NEW"))


@pytest.fixture
def small(tmp_path):
    """A vocabulary that knows letters and one word."""
    path = tmp_path / "vocab.txt"
    path.write_text(
        "\n".join([*SPECIAL, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase), "cat"]) + "\n"
    )
    return path


def test_entries_are_added_after_those_that_are_there(books, small, tmp_path):
    (tmp_path / "more.txt").write_text("running\ncat\n##ing\n")
    out, result = make(books, tmp_path / "out", existing=str(small), additions=str(tmp_path / "more.txt"), learn=4)
    before, after = small.read_text().splitlines(), (out / "vocab.txt").read_text().splitlines()
    assert after[: len(before) + 2] == [*before, "running", "##ing"]
    assert len(after) == len(set(after)) == len(before) + 6 == len(before) + result.figures["added"]
    wordpiece = WordPiece.load(out)
    assert wordpiece.vocab == after
    ids, _ = wordpiece.encode(["Running cat", "matting"])
    found = [after[number] for number in ids]
    assert found[:2] == ["running", "cat"]
    assert found[-1] == "##ing"
    assert "learn=" not in result.summary
    again, _ = make(books, tmp_path / "two", existing=str(small), additions=str(tmp_path / "more.txt"), learn=4)
    assert (again / "tokenizer.json").read_bytes() == (out / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("learn", [0, 4])
def test_files_that_others_read_stay_beside_the_vocabulary_that_is_theirs(books, small, tmp_path, learn):
    (folder := tmp_path / "theirs").mkdir()
    small.rename(folder / "vocab.txt")
    files = {"sentencepiece.bpe.model": b"\n\x0e", "vocab.json": b"{ }", "merges.txt": b"#\r\n"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "spm.model").symlink_to(books / "book0.txt")  # leads out
    out, _ = make(books, tmp_path / "out", existing=str(folder), learn=learn)
    own = ("vocab.txt", "tokenizer.json")
    assert {one.name: one.read_bytes() for one in out.iterdir() if one.name not in own} == ({} if learn else files)


@pytest.mark.parametrize("entry", ["Running", "two words", "a-b"])
def test_an_entry_that_could_never_be_found_is_refused(books, small, tmp_path, entry):
    (tmp_path / "more.txt").write_text(f"{entry}\n")
    with refused(InputError, f"'{entry}'", key="additions", line=1):
        make(books, tmp_path / "out", existing=str(small), additions=str(tmp_path / "more.txt"))


@pytest.fixture
def padded(small, tmp_path):
    """A folder as sentence-transformers publishes it: the tokenizer pads and cuts texts."""
    tokenizer = Tokenizer.from_str(build(small.read_text().splitlines()))
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(max_length=8)
    folder = tmp_path / "padded"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("settings", [{}, {"learn": 4}])
def test_padding_and_truncation_of_an_existing_tokenizer_are_left_out(books, padded, tmp_path, settings):
    out, result = make(books, tmp_path / "out", existing=str(padded), **settings)
    assert result.figures["added"] == settings.get("learn", 0)
    written = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert written.padding is None
    assert written.truncation is None
    text = "a cat that runs for more than eight tokens"
    ids = written.encode(text, add_special_tokens=False).ids
    assert ids == WordPiece.load(padded).encode([text])[0].tolist()
    assert len(ids) > 8


def test_learnt_entries_that_the_tokenizer_never_gives_are_left_out(books, small, tmp_path):
    spec = json.loads(build(small.read_text().splitlines()))
    walking = {"type": "Replace", "pattern": {"String": "running"}, "content": "walking"}
    spec["normalizer"] = {"type": "Sequence", "normalizers": [spec["normalizer"], walking]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    out, result = make(books, tmp_path / "out", existing=str(tmp_path / "tokenizer.json"), learn=60)
    assert "its normalizer is BertNormalizer, Replace" in result.summary
    entries = (out / "vocab.txt").read_text().splitlines()
    assert "words" in entries
    assert "running" not in entries
    assert len(entries) == len(small.read_text().splitlines()) + result.figures["added"]


def test_capitals_are_learnt_by_a_tokenizer_that_keeps_them(small, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("Berlin lies in Brandenburg . " * 60)
    spec = json.loads(build(small.read_text().splitlines())) | {"normalizer": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    existing = str(tmp_path / "tokenizer.json")
    out, result = make(tmp_path / "text", tmp_path / "out", existing=existing, learn=60)
    assert "capitals and accents kept" in result.summary
    assert result.figures["lowercase"] is False
    learnt = {*(out / "vocab.txt").read_text().splitlines()} - {*small.read_text().splitlines()}
    assert {"Berlin", "Brandenburg"} <= learnt
    assert f"; {len(learnt)} of learn=60" in result.summary


def test_what_any_normalizer_does_to_capitals_is_said_and_nothing_is_added_to_another_kind(books, tmp_path):
    tokenizer = Tokenizer(models.Unigram([(token, 0.0) for token in [*SPECIAL, "a"]], unk_id=1))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    _, result = make(books, tmp_path / "out", existing=str(tmp_path / "tokenizer.json"))
    assert "lowercased, accents stripped" in result.summary
    assert result.figures["lowercase"] is True
    (tmp_path / "more.txt").write_text("running\n")
    with refused(InputError, "a Unigram tokenizer", key="existing"):
        make(books, tmp_path / "two", existing=str(tmp_path / "tokenizer.json"), additions=str(tmp_path / "more.txt"))


def test_additions_need_something_to_be_added_to(books, tmp_path):
    with pytest.raises(ConfigError, match="existing=FOLDER"):
        config(books, tmp_path / "out", learn=4)


def test_a_dump_without_articles_says_what_was_passed_over(tmp_path):
    page = "<page><title>Talk:{}</title><ns>1</ns><id>1</id><revision><text>words</text></revision></page>"
    (tmp_path / "a.xml").write_text(f"<mediawiki>{page.format('A')}{page.format('B')}</mediawiki>")
    corpus = CorpusConfig(name="wiki", reader="wikipedia", path=f"{tmp_path}/a.xml")
    told = r"no text .* in 0 documents of .*/a\.xml \(skipped: 2 other namespaces\)"
    with pytest.raises(InputError, match=told):
        vocab.sample_corpus(VocabConfig(corpus=corpus, source="none", out="out"))


def existing_folder(folder, settings):
    """A model's folder with a vocab.txt and perhaps a tokenizer_config.json."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "word"]) + "\n")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


OPTIONS = [{"lowercase": False}, {"lowercase": True, "strip_accents": False}, {"split_chinese": False}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("stated", [None, {}, {"do_lower_case": None}])
def test_a_folder_gives_what_its_vocab_txt_gives(options, stated, tmp_path):
    folder = existing_folder(tmp_path / "model", stated)
    one, _ = make(tmp_path, tmp_path / "one", existing=str(folder), **options)
    two, _ = make(tmp_path, tmp_path / "two", existing=str(folder / "vocab.txt"), **options)
    assert (one / "tokenizer.json").read_bytes() == (two / "tokenizer.json").read_bytes()
    # The result has these options: naming them again is no contradiction.
    make(tmp_path, tmp_path / "three", existing=str(one), **options)


STATED = [({"do_lower_case": True}, {"lowercase": False}), ({"strip_accents": False}, {"strip_accents": True})]
STATED.append(({"tokenize_chinese_chars": True}, {"split_chinese": False}))


@pytest.mark.parametrize(("stated", "options"), STATED)
@pytest.mark.parametrize("kind", ["tokenizer_config.json", "tokenizer.json"])
def test_options_that_differ_from_an_existing_tokenizer_are_refused(stated, options, kind, tmp_path):
    folder = existing_folder(tmp_path / "model", stated)
    if kind == "tokenizer.json":
        folder, _ = make(tmp_path, tmp_path / "made", existing=str(folder))
    with refused(ConfigError, "tokenizer", key=next(iter(options))):
        make(tmp_path, tmp_path / "out", existing=str(folder), **options)


def test_a_tokenizer_configuration_with_a_text_for_a_choice_is_named(tmp_path):
    folder = existing_folder(tmp_path / "model", {"do_lower_case": "true"})
    with refused(InputError, "do_lower_case", path=str(folder / "tokenizer_config.json")):
        make(tmp_path, tmp_path / "out", existing=str(folder))
    with pytest.raises(InputError, match="do_lower_case"):
        WordPiece.load(folder)


def test_a_large_file_that_is_read_whole_gives_a_sample_of_all_of_it(tmp_path):
    rows = [f'"{word} {"lamp " * 200}"' for word in ("first", "last") for _ in range(9000)]
    (tmp_path / "corpus.csv").write_text("\n".join(["text", *rows]))
    corpus = CorpusConfig(name="csv", reader="csv", path=str(tmp_path / "corpus.csv"), options={"text": "text"})
    sample = vocab.sample_corpus(VocabConfig(out="out", corpus=corpus, sample_bytes=8_000_000))
    found = [text.split()[0] for text in sample]
    assert {"first", "last"} == set(found)


def test_the_models_that_vocab_takes_are_those_that_convert_reads():
    assert set(known_models.MODELS) == set(NAMES)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"config.json": '{"model_type": "electra"}'}, "electra"),
        ({"config.json": '{"model_type": "t5"}', "tokenizer.json": "{}"}, "tokenizer.json"),
        ({"config.json": '{"model_type": "deberta-v2"}', "spm.model": "\n"}, "deberta-v2"),
        ({"config.json": '{"model_type": "roberta"}', "vocab.txt": "a 9\n", "bpe.codes": "a b 9\n"}, "bpe.codes"),
    ],
)
def test_a_model_that_no_later_command_takes_is_refused_at_once(tmp_path, files, says):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with refused(InputError, says, key="existing"):
        existing_vocabulary.load(config(tmp_path, tmp_path / "x", existing=str(tmp_path)))
