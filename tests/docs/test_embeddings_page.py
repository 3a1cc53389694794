"""The page "From an encoder to search" works as it stands, on a small dump."""

import json
import re

import numpy as np
import pytest

from tests.docs.fences import blocks
from tests.docs.test_worked_examples import shell

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
