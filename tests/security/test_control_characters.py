"""What strangers name or say is text on a terminal, in a log and on a page: never an order."""

import os
import pty
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from model.config import ModelConfig
from model.huggingface import model_card
from pipeline.console.redact import one_line, redact
from pipeline.errors import InputError, Restart
from pipeline.reporting import plots
from pipeline.storage import http_transfer
from pipeline.storage.http_transfer import RetryPolicy
from tests.security.test_secrets import SECRET, SIGNED
from tests.support import finished, forked

CONFIG = ModelConfig(name="tiny", layers=1, hidden=8, heads=2, feed_forward=8, positions=8, vocab_size=9)

# A title, a colour in C0 and C1, a line that is cleared, a bell, letters in the other direction.
HOSTILE = "a\x1b]0;t\x07\x1b[31m\x9b2J\r\x1b[K\u202egpj.\u2066\x7f\x08\udce9"
SHOWN = r"a\u001b]0;t\u0007\u001b[31m\u009b2J\u000d\u001b[K\u202egpj.\u2066\u007f\u0008\udce9"


def test_orders_are_written_out_and_letters_stay():
    assert redact(HOSTILE) == SHOWN
    assert redact(SHOWN) == SHOWN, "and once"
    assert one_line("a\nerror: b\u2028c") == r"a\nerror: b\u2028c"
    letters = "zwölf\t日本語\n\u05d0\u200f(1) می\u200cخواهم 👩\u200d🚀"
    assert redact(letters) == letters


@pytest.mark.parametrize("kind", [InputError, Restart])
def test_an_error_is_one_line_without_orders(kind):
    text = str(kind(f"{HOSTILE}\nerror: another"))
    assert text == rf"{SHOWN}\nerror: another"


def test_a_path_of_an_error_stays_a_path():
    assert InputError("unreadable", path=Path(HOSTILE)).path == HOSTILE


@pytest.fixture
def server():
    """Serve answers whose reason is an order to a terminal."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(b"HTTP/1.0 403 no\x1b[2J\x9b31m\r\n\r\n")

        def log_message(self, *_):
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/a"
        made.shutdown()


def test_the_words_of_a_server_are_text(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(InputError) as caught:
        http_transfer.read(server, RetryPolicy(5, 1))
    assert r"no\u001b[2J\u009b31m" in str(caught.value)


@pytest.mark.parametrize(
    "name", [r"\frac$ {$", "$x$", "a_b^c", "_hidden", "<b>&\"'", HOSTILE.replace("\n", ""), "caf\udce9"]
)
def test_a_name_in_a_plot_is_text(name):
    for drawn in (
        plots.bars([name, "b"], [(name, [1.0, 2.0]), ("other", [1.0, 1.0])], name),
        plots.lines([(name, [1, 2], [1, 2]), ("other", [1, 2], [2, 1])], name, name),
    ):
        words = [(element.text or "").strip() for element in ElementTree.fromstring(plots.svg(drawn)).iter()]
        assert sum(word.startswith(one_line(name)) for word in words) == 3, "the axes' and the legend's"


@pytest.mark.parametrize(
    "license", ["Apache: 2.0", "no", "1.0", "a # b", "- x", "{a", "'", "x\n---\nlicense: mit", "\x1b[2J\u202ecc"]
)
def test_the_header_of_a_card_is_yaml_whatever_its_words(license):
    corpus = {"name": HOSTILE + "\n| forged |", "language": "no", "path": f"/a/{HOSTILE}|b"}
    card = model_card.write(CONFIG, 1, [prepared(corpus)], {"license": license, "from|": "a\nb"})
    _, header, body = card.split("---\n", 2)
    found = yaml.safe_load(header)
    assert (found["license"], found["language"]) == (one_line(license), "no")
    assert found["tags"] == ["bert", "fill-mask"]
    assert not set(card) & set("\x1b\x07\x9b\r\u202e\u2066\x7f\x08")
    assert "\n| forged" not in body
    assert all(line.replace(r"\|", "").count("|") == 3 for line in body.splitlines() if line[:1] == "|")


@pytest.mark.parametrize("url", SIGNED)
def test_a_card_has_no_signed_address(url):
    card = model_card.write(CONFIG, 1, [prepared({"name": "web", "files": [{"url": url}]})], {})
    assert SECRET not in card
    assert "https://h" in card


def test_a_card_without_a_licence_says_so():
    card = model_card.write(CONFIG, 1, [], {})
    assert yaml.safe_load(card.split("---\n")[1])["license"] == "unknown"
    assert "fill in" in card


def prepared(corpus):
    return finished.manifest("prepare", config={"corpus": corpus})


def test_a_terminal_gets_the_orders_of_bars_alone(root):
    code = (
        "import sys; from pipeline.console import output, terminal; output.outlive_readers()\n"
        "print(sys.argv[1]); terminal.say(sys.argv[1]); print('\\r\\x1b[Kdone', file=sys.stderr)\n"
        "raise ValueError(sys.argv[1])\n"
    )
    terminal, end = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "300", "PYTHONUTF8": "1"}
    process = subprocess.Popen([sys.executable, "-c", code, HOSTILE], cwd=root, stdout=end, stderr=end, env=env)
    os.close(end)
    told = b""
    while part := _read(terminal):
        told += part
    os.close(terminal)
    assert process.wait(60) == 1
    assert b"\x1b[31m" not in told
    text = re.sub(r"\x1b\[[\d;]*m", "", told.decode())  # our own colours
    assert not set(text.replace("\x1b[K", "").replace("\r", "")) & set(HOSTILE[1:]) - set(SHOWN)
    assert text.startswith(SHOWN.replace(r"\u000d\u001b[K", "\r\x1b[K"))
    assert f"{SHOWN}\r\n" in text, "what is said, not printed, has not even these"


def _read(terminal):
    try:
        return os.read(terminal, 10_000)
    except OSError:  # the other end is closed
        return b""


def test_a_name_in_a_folder_is_no_order(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / f"{HOSTILE}\n.txt.gz").write_bytes(b"\x1f\x8b no gzip")
    words = ("+corpus=text", f"corpus.path={folder}", "size=100", f"out={tmp_path}/out")
    done = forked.fresh("-m", "pipeline.vocab", *words)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert said.count("\n") == 1
    assert not set(said) & set("\x1b\x07\x9b\r\u202e\u2066\x7f\x08")
