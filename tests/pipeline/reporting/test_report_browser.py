"""The report in a real browser: wide and as narrow as a phone, light and dark."""

import html
import json
import re

import numpy as np
import pytest

from benchmarks.small import make_work
from model.tracking.metrics_file import METRICS
from pipeline import report
from pipeline.config import ReportConfig
from tests.support import finished

# What a person would see at once: a page wider than the window, text cut off or in the colour of
# what is behind it, a picture that is not there.
LOOK = """<script>addEventListener("load", () => {
  const text = [...document.querySelectorAll(".plots svg text")];
  const cut = text.filter(t => {
    const a = t.getBoundingClientRect(), b = t.closest("figure").getBoundingClientRect();
    return a.left < b.left || a.right > b.right || a.top < b.top || a.bottom > b.bottom;
  });
  const boxes = text.map(t => [t.textContent, t.getBoundingClientRect(), t.closest("svg")]);
  const over = boxes.flatMap(([one, a, s], n) => boxes.slice(n + 1).filter(([_, b, t]) =>
    s === t && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
  ).map(([other]) => `${one} / ${other}`));
  const small = text.filter(t => t.getBoundingClientRect().height < 8);
  const style = getComputedStyle(document.body);
  parent.document.title = JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, ink: style.color,
    paper: style.backgroundColor, plots: document.querySelectorAll(".plots svg").length,
    empty: [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height < 40).length,
    over, cut: cut.map(t => t.textContent), small: small.map(t => t.textContent),
    told: Math.min(...[...document.querySelectorAll(".what")].map(t => t.offsetWidth)),
    fetched: performance.getEntriesByType("resource").length,
  });
})</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report with every kind of section."""
    work = tmp_path_factory.mktemp("work")
    make_work(work)
    (work / "prepare" / "manifest.json").unlink()
    prepared = {
        "documents": {"read": 1_234_567, "written": 1_200_000, "short": 34_000, "duplicate": 567},
        "skipped": {"redirect": 7},
        "totals": {"tokens": 987_654_321, "train": 9_000_000, "validation": 90_000},
        "lengths": {str(length): 10 + length**2 for length in range(5, 128)},
    }
    scored = {"task": "x", "title": "A task with rather a long name", "sample": True, "metric": "matthews"}
    scored |= {"score": 0.7, "baseline": 0.5, "majority": 0.0, "rows": {"train": 4000, "dev": 1000}}
    scored |= {"remarks": ["12 of 1,000 dev examples are in train too"]}
    scored |= {"confusion": {one: {other: 250 for other in ("yes", "no")} for one in ("yes", "no")}}
    scored |= {"wrong": [{"texts": ["words " * 40, "more words"], "label": "yes", "answer": "no"}]}
    trained = {"validation": {"masked_lm_accuracy": 0.2}, "most_frequent_accuracy": 0.05}
    made = {"prepare": prepared, "train": trained, "evaluate-a-rather-long-name": scored}
    for number, (name, figures) in enumerate(made.items()):
        (work / name).mkdir(exist_ok=True)
        marks = {"fingerprint": str(number) * 64, "inputs": {"x": str(number - 1) * 64}, "summary": "words " * 30}
        when = {"seconds": 60.0 * 10**number, "finished": f"2026-01-0{number + 1}T00:00:00+00:00"}
        finished.manifest(name.partition("-")[0], figures=figures, **marks, **when).write(work / name)
    draws = np.random.default_rng(0)
    rows = [
        {
            "kind": kind,
            "step": step,
            "masked_lm_loss": 9 / step + draws.random(),
            "learning_rate": 1e-4 / step,
            "tokens_per_second": 31_000 + draws.integers(999),
        }
        for step in range(100, 900_000, 9_000)
        for kind in ("train", "validation")
    ]
    lines = "".join(json.dumps(row, default=int) + "\n" for row in rows)
    (work / "train" / METRICS).write_text(lines)
    (work / "report").mkdir()
    report.make(ReportConfig(workdir=str(work), out=str(work / "report")), work / "report")
    return work / "report" / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable(drawn, page, tmp_path, width, scheme):
    looked = tmp_path / "page.html"
    content = html.escape(page.read_text(encoding="utf-8") + LOOK)
    # No window of a browser is as narrow as a phone, but a frame is.
    looked.write_text(f'<iframe width="{width}" height="9000" srcdoc="{content}"></iframe>', encoding="utf-8")
    dark = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    dom = drawn(looked.as_uri(), dark, "--window-size=1400,2000")
    title = re.search(r"<title>(\{.*?\})</title>", dom)
    assert title, dom[:2000]
    seen = json.loads(title[1])
    assert seen["page"] <= seen["width"] <= width
    assert seen["fetched"] == seen["empty"] == 0
    assert (seen["plots"], seen["cut"], seen["small"], seen["over"]) == (5, [], [], [])
    assert seen["told"] >= 300, "a column of one word a line is not read"
    ink, paper = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) / 3 for name in ("ink", "paper"))
    assert (paper < 60 < 180 < ink) if scheme == "dark" else (ink < 60 < 200 < paper)
