"""The pages are whole: nothing they name is missing, nothing they show comes from elsewhere."""

import ast
import importlib
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from pipeline.cli import composing, conf_files, entry_point
from pipeline.config import VocabConfig
from tests.docs.fences import blocks
from tests.docs.test_worked_examples import shell
from tests.pipeline.readers.reading import read
from tests.support import forked, formats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "hooks"))
COMMANDS = importlib.import_module("reference").COMMANDS


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    done = forked.fresh(
        "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", out, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_pages_need_no_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"', text)
        fetched += re.findall(r'<link[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*>', text)
        assert not [link for link in fetched if "//" in link], page


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_key_of_a_command_is_on_its_page(site, command):
    page = (site / "stages" / f"{command}.html").read_text(encoding="utf-8")
    keys = set(re.findall(r"<td><code>([\w.]+)</code></td>", page))
    for name, schema in COMMANDS.items():
        composing.register(name, schema)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        composed = compose(command)
    assert {key.partition(".")[0] for key in keys} >= set(map(str, composed))


def test_a_page_that_is_a_file_can_search_all(site, drawn):
    address = f"{(site / 'stages' / 'train.html').as_uri()}?q=decontamination"
    page = drawn(address, "--virtual-time-budget=8000")
    assert re.search(r'result__meta">[1-9]\d* matching document', page)
    assert (site / "changelog.html").as_uri() in page.partition("md-search-result__list")[2]


def test_every_configuration_is_a_command_with_a_schema():
    assert {path.stem for path in conf_files.CONF.glob("*.yaml")} == {*COMMANDS, "hydra"}


def test_every_proof_that_a_page_names_is_there(root):
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "SECURITY.md"]
    named = [
        (page.name, *found)
        for page in pages
        for found in re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text("utf-8"))
        if page.name not in ("add-corpus.md",)  # its test is written by the page itself
    ]
    assert len(named) > 20
    for page, path, test in named:
        assert (root / path).is_file(), f"{page}: {path}"
        assert f"def {test}" in (root / path).read_text("utf-8"), f"{page}: {path}::{test}"


def test_every_proof_of_a_claim_is_in_the_file_that_it_links_to(root):
    text = (root / "docs/reproducibility.md").read_text("utf-8")
    tests = re.findall(r"\[`(test_\w+)`\]\(\.\./([^)]+)\)", text)
    assert len(tests) > 7
    for test, path in tests:
        assert f"def {test}(" in (root / path).read_text("utf-8"), f"{path}: {test}"


def test_links_of_the_readme_lead_somewhere(root):
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)", (root / name).read_text("utf-8"))
        assert [link for link in links if not (root / link).exists()] == [], name


# The messages on the page about troubles are those that the code prints.


def constants(root):
    """Return all texts in the code; an f-string's parts are texts of their own."""
    return [
        node.value
        for folder in ("pipeline", "model")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def messages(root):
    text = (root / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.M)


def test_every_message_is_one_that_the_code_prints(root):
    listed, known = messages(root), constants(root)
    assert len(listed) >= 15
    for message in listed:
        for part in filter(None, (part.strip() for part in message.split("…"))):
            assert any(part in text for text in known), f"{message}: {part!r} is not in the code"


# Each command of the table of corpora reads a sample of what it names.


PAGE = Path(__file__).parents[2] / "docs" / "stages" / "prepare.md"
ROWS = [row.split(" | ")[1] for row in PAGE.read_text(encoding="utf-8").split("\n") if row.startswith("| ")]
CORPORA_OF_THE_TABLE_COMMANDS = [command for row in ROWS for command in re.findall(r"`(\+corpus=[^`]+)`", row)]
ELSEWHERE = {"+corpus=fineweb2", "+corpus=mix", "+corpus=sample"}  # of the hub; of several; of what is installed
TEXT = "The keeper of the lamp counted many boats."
WIKI = f"<page><title>T</title><ns>0</ns><id>1</id><revision><text>{TEXT}</text></revision></page>"
SAMPLES = dict.fromkeys(("books", "text", "lines"), ("a.txt", TEXT)) | {
    "wiki": ("a.xml", f"<mediawiki>{WIKI}</mediawiki>"),
    "wikiextractor": ("wiki_00", f'<doc id="1" title="T">\nT\n\n{TEXT}\n</doc>\n'),
    "enterprise": ("a.ndjson", json.dumps({"identifier": 1, "article_body": {"html": f"<p>{TEXT}</p>"}})),
    "numbered": ("a.txt", f"1\t{TEXT}\n" * 30),
    "jsonl": ("a.jsonl", json.dumps({"text": TEXT})),
    "tsv": ("a.tsv", f"text\tn\n{TEXT}\t1\n"),
}


def sample(name, folder):
    if name in SAMPLES:
        (folder / SAMPLES[name][0]).write_text(SAMPLES[name][1], encoding="utf-8")
    elif name == "parquet":
        formats.rows(folder / "a.parquet", [TEXT])
    else:
        form = next(form for form, (corpus, _, _) in (formats.MANY | formats.ONE).items() if corpus == name)
        formats.write(folder, form, [TEXT])


@pytest.mark.parametrize("command", [command for command in CORPORA_OF_THE_TABLE_COMMANDS if command not in ELSEWHERE])
def test_a_command_of_the_table_reads_what_it_names(command, tmp_path):
    name = "numbered" if "numbered" in command else command.partition("=")[2]
    sample(name, tmp_path)
    words = [*command.split(), f"corpus.path={tmp_path}", "size=100"]
    config = entry_point.compose_config("vocab", VocabConfig, words, False)
    found, log = read(config.corpus)
    assert {document.text for document in found} == {TEXT}
    assert "broken" not in log


def test_the_table_has_every_corpus_that_reads_files():
    named = {word for row in ROWS for word in re.findall(r"`(?:\+corpus=)?(\w+)", row)}
    corpora = {path.stem for path in (PAGE.parents[2] / "conf" / "corpus").glob("*.yaml")}
    assert corpora - named <= {"glue"}


# The page "From an encoder to search" works as it stands, on a small dump.


WORDS = ["bến", "cảng", "đồi", "núi", "sông", "hồ", "làng", "chợ", "cầu", "đường", "rừng", "biển", "đảo", "vua"]


def write_dump(path, articles=200):
    """Articles of two sections, each with words of its own."""
    draw = np.random.default_rng(0)

    def sentence(name):
        return " ".join([name.capitalize(), *draw.choice(WORDS, 8), name]) + ". "

    pages = []
    for number in range(articles):
        name = " ".join(draw.choice(WORDS, 3))
        parts = ("".join(sentence(name) for _ in range(4)) for _ in range(2))
        text = "\n\n== Lịch sử ==\n".join(parts)
        head = f"<title>{name.title()} {number}</title><ns>0</ns><id>{number + 1}</id>"
        pages.append(f"<page>{head}<revision><text>{text}</text></revision></page>\n")
    path.write_text(f'<mediawiki xml:lang="vi">\n{"".join(pages)}</mediawiki>\n', encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_goes_from_a_dump_to_a_sentence_encoder_by_the_page_alone(root, tmp_path):
    for name in ("sentence_transformers", "datasets", "bm25s", "onnxruntime"):
        pytest.importorskip(name)
    write_dump(tmp_path / "dump.xml")
    printed = ""
    for block in blocks(root / "docs" / "embeddings.md"):
        text = block.text.replace("corpus.path=DUMP", "corpus.path=dump.xml")
        # The one thing left out is most of the steps.
        text = text.replace("tasks=[]", "tasks=[] steps=20 vocab.size=400").replace(" 5 128", " 1 16")
        if block.title:
            (tmp_path / block.title).write_text(text, encoding="utf-8")
        elif block.language == "sh":
            printed += shell(text, tmp_path, root)
    shown, passes, rows = map(int, re.findall(r"(\d+) rows shown of (\d+) x (\d+)", printed)[0])
    assert 0 < shown <= passes * rows
    found = json.loads((tmp_path / "work/vi/evaluate-retrieval/results.json").read_text())
    assert {"this model", "before", "BM25"} <= found["systems"].keys()
    passages = (tmp_path / "work/vi/pairs/retrieval/corpus.jsonl").read_text().splitlines()
    assert np.load(tmp_path / "work/vi/passages.npy").shape == (len(passages), 128)
    assert (tmp_path / "work/vi/int8/onnx/model_quantized.onnx").is_file()
    assert "retrieval ndcg@10" in (tmp_path / "work/vi/report/report.html").read_text()
