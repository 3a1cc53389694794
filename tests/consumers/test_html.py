"""The main text of real pages: ours, trafilatura's, and the one that Mozilla's tests of readability expect."""

import json
import re
import subprocess
from collections import Counter
from html import unescape
from statistics import mean

import pytest

from pipeline.text import encodings, html_text
from tests.consumers.conftest import environment, need, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(3000)]
VERSION = "2.3.1"
PAGES = "github.com/go-shiori/go-readability@v0.0.0-20251205110129-5db1dc9836f0"  # 118 pages
EXTRACT = """import json, sys, trafilatura
pages = json.load(open(json.loads(sys.argv[1])))
print(json.dumps({name: trafilatura.extract(page, include_comments=False) for name, page in pages.items()}))"""


def pages():
    need("go")

    def make(place):
        cache = f"GOMODCACHE={place}"
        subprocess.run(["env", cache, "GOFLAGS=-modcacherw", "go", "mod", "download", PAGES], cwd=place, check=True)

    return sorted(environment("pages", PAGES, make=make).glob(f"{PAGES}/test-pages/*/source.html"))


def likeness(one, other):
    """F1 of the words of two texts, as often as they occur."""
    ours, theirs = (Counter(re.findall(r"\w+", text or "")) for text in (one, other))
    return 2 * (ours & theirs).total() / max(1, ours.total() + theirs.total())


def test_the_prose_of_pages_is_what_others_find(tmp_path):
    extract = python_with("trafilatura", f"trafilatura=={VERSION}", "lxml_html_clean")
    found = {path.parent.name: path for path in pages()}
    texts = {name: encodings.decode_page(path.read_bytes(), "en", None) for name, path in found.items()}
    (tmp_path / "pages").write_text(json.dumps(texts))
    theirs = extract(EXTRACT, str(tmp_path / "pages"))
    ours = {name: html_text.text_of(page) for name, page in texts.items()}
    wanted = {
        name: unescape(re.sub("<[^>]*>", " ", path.with_name("expected.html").read_text("utf-8", "replace")))
        for name, path in found.items()
    }
    assert len(ours) == 118
    # Measured: 0.918, 0.943 and 0.935; 0.78 and less with what surrounds the main text.
    assert mean(likeness(ours[name], theirs[name]) for name in ours) > 0.91
    assert mean(likeness(ours[name], wanted[name]) for name in ours) > mean(
        likeness(theirs[name], wanted[name]) for name in ours
    )
