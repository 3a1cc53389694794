"""Corpora in an object store are read as those on disk are."""

import bz2
import gzip
import io
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError, StoreError
from pipeline.filtering import filters
from pipeline.readers import ReadLog, open_corpus
from pipeline.stages import fingerprints
from pipeline.storage import places
from tests.support import objects
from tests.support.refusals import refused

TEXTS = [f"Document {n} has some words.\nAnd a second line of {n}." for n in range(200)]
LINES = "\n\n".join(TEXTS).encode()


def packed():
    """The same documents in every form."""
    table, archive = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), table, row_group_size=50)
    with zipfile.ZipFile(archive, "w") as writer:
        for number, text in enumerate(TEXTS):
            writer.writestr(f"{number:03}.txt", text)
    return {
        "lines/a.txt": LINES,
        "lines/b/c.txt.gz": gzip.compress(LINES),
        "lines/d.txt.bz2": bz2.compress(LINES[:4000]) + bz2.compress(LINES[4000:]),
        "lines/.hidden.txt": b"no",
        "parquet/a.parquet": table.getvalue(),
        "text/a.zip": archive.getvalue(),
    }


@pytest.mark.parametrize(("reader", "copies"), [("lines", 3), ("parquet", 1), ("text", 1)])
def test_readers_take_addresses(bucket, tmp_path, reader, copies):
    for name, raw in packed().items():
        objects.put(f"{bucket}/{name}", raw)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    found = []
    for place in (f"{bucket}/{reader}", f"{tmp_path}/{reader}"):
        corpus = CorpusConfig(name="c", reader=reader, path=place)
        opened = open_corpus(corpus, "")
        splits = opened.splits(3000)
        assert len(splits) > 3
        found.append([d.text for split in splits for d in opened.read(split, ReadLog())])
    assert (found[0], sorted(found[0])) == (found[1], sorted(TEXTS * copies))


def test_wildcards_and_fingerprints(bucket):
    for name in ("w/a.txt", "w/b.txt", "w/c/d.txt", "w/e.md"):
        objects.put(f"{bucket}/{name}", name.encode())
    top = f"{bucket}/w"
    assert list(map(str, places.matching(f"{top}/a.txt"))) == [f"{top}/a.txt"]
    assert places.matching(f"{top}/z.txt") == []
    before = fingerprints.fingerprint_path(top)
    assert fingerprints.fingerprint_path(top) == before
    objects.put(f"{top}/a.txt", b"longer than before")
    assert fingerprints.fingerprint_path(top) != before


@pytest.mark.parametrize(
    "pattern", ["*.txt", "*/*", "**", "**/*.txt", "c/**/*.txt", "**/f/*.txt", "c/**/g.txt", "**/.h/*"]
)
def test_wildcards_match_what_they_match_on_disk(bucket, tmp_path, pattern):
    names = "a.txt .b.txt c/d.txt c/e.md c/f/g.txt c/f/f/i.txt c/f/j/f/k.txt c/.h/g.txt .h/l.txt"
    for name in names.split():
        objects.put(f"{bucket}/w/{name}", name.encode())
        (tmp_path / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / name).touch()
    here, there = (
        [str(file).removeprefix(top) for file in places.matching(f"{top}/w/{pattern}")]
        for top in (str(tmp_path), bucket)
    )
    assert here == there != []


def test_what_is_not_there_is_named(bucket):
    nowhere = CorpusConfig(name="c", reader="lines", path=f"{bucket}/nowhere")
    with refused(InputError, key="corpus.path", value=nowhere.path):
        open_corpus(nowhere, "").splits(99)
    objects.put(f"{bucket}/gone/a.txt", LINES)
    reader = open_corpus(CorpusConfig(name="c", reader="lines", path=f"{bucket}/gone"), "")
    (split,) = reader.splits(1 << 20)
    objects.delete([f"{bucket}/gone/a.txt"])
    with pytest.raises(InputError, match=rf"{bucket}/gone/a\.txt: "):
        list(reader.read(split, ReadLog()))


def test_a_file_system_of_arrow_is_read_as_a_store_is(tmp_path, monkeypatch):
    (tmp_path / "w" / "c").mkdir(parents=True)
    for name in ("a.txt", "b.md", "c/d.txt"):
        (tmp_path / "w" / name).write_bytes(name.encode())
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(places, "_opened", lambda root: (system, ""))
    top = places.at("hdfs://host/w")
    assert places.is_folder(top)
    assert {str(file): file.read_bytes() for file in places.below(top)} == {
        f"{top}/{name}": name.encode() for name in ("a.txt", "b.md", "c/d.txt")
    }
    assert list(map(str, places.matching(f"{top}/*.txt"))) == [f"{top}/a.txt"]
    assert places.at(f"{top}/a.txt").stat().st_size == 5
    with pytest.raises(FileNotFoundError):
        places.at(f"{top}/gone.txt").open()


@pytest.mark.parametrize(
    "address", ["ftp://host/x", "memory://x/y", "wasb://c@a.blob.core.windows.net/y", "az://c/y", "mock://x/y"]
)
def test_what_is_not_read_is_refused_at_once_with_what_is(address):
    root = "/".join(address.split("/")[:3])
    with pytest.raises(ConfigError, match="hdfs://") as caught:
        places.at(address).is_dir()
    assert str(caught.value).startswith(f"{root}: ")
    assert "\n" not in str(caught.value)


class Closed(BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_HEAD(self):
        self.send_error(403)

    do_GET = do_HEAD

    def log_message(self, *_):
        """Nothing."""


def test_a_store_that_lets_nobody_in_is_named(monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        objects.CLIENTS["s3"].made.clear()
        for look in (fingerprints.fingerprint_path, lambda place: places.matching(f"{place}/*.txt")):
            with pytest.raises(StoreError, match="denied") as raised:
                look("s3://closed/x")
            assert raised.value.path.startswith("s3://closed/x")
        server.shutdown()
        objects.CLIENTS["s3"].made.clear()


# Every file of a folder is found, through links too, or the search says what it cannot see.


# Root may read everything, unless these rights are taken away.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def unprivileged(root, *words):
    """Run Python as somebody whom permissions bind."""
    prefix = [] if os.geteuid() else UNPRIVILEGED
    if prefix and shutil.which(prefix[0]) is None:
        pytest.skip("needs setpriv, as root is not bound by permissions")
    return subprocess.run([*prefix, sys.executable, *words], cwd=root, capture_output=True, text=True, check=False)


def text(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Words.\n")
    return path


def names(found, top):
    return [str(file).removeprefix(f"{top}/") for file in found]


@pytest.fixture
def linked(tmp_path):
    """A folder with a link to another one, in which links lead in circles."""
    text(tmp_path / "data" / "deep" / "b.txt")
    text(tmp_path / "data" / "c.txt")
    top = tmp_path / "top"
    text(top / "a.txt")
    (top / "sub").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "deep" / "home").symlink_to(top)
    return top


def test_linked_folders_are_searched_once(linked):
    wanted = ["a.txt", "sub/c.txt", "sub/deep/b.txt"]
    assert names(places.below(linked), linked) == wanted
    assert names(places.matching(f"{linked}/**/*.txt"), linked) == wanted
    assert names(places.matching(f"{linked}/sub/*.txt"), linked) == ["sub/c.txt"]
    assert names(places.matching(f"{linked}/*/deep/[a-c].txt"), linked) == ["sub/deep/b.txt"]
    assert names(list(filters.evaluation_files([str(linked)])), linked) == wanted


def test_a_folder_keeps_its_own_name_where_links_lead_to_it_too(tmp_path):
    text(tmp_path / "z" / "a.txt")
    (tmp_path / "a").symlink_to(tmp_path / "z")
    assert names(places.below(tmp_path), tmp_path) == ["z/a.txt"]
    assert names(places.matching(f"{tmp_path}/a/**"), tmp_path) == ["a/a.txt"]


def test_hidden_files_are_left_out_and_asked_for(tmp_path):
    for name in (".a.txt", ".cache/b.txt", "~$c.txt", "d/.e.txt"):
        text(tmp_path / name)
    (tmp_path / ".broken").symlink_to("nowhere")
    assert places.below(tmp_path) == []
    assert places.matching(f"{tmp_path}/**/*.txt") == [tmp_path / "~$c.txt"]
    assert names(places.matching(f"{tmp_path}/.cache/*.txt"), tmp_path) == [".cache/b.txt"]
    assert names(places.matching(f"{tmp_path}/.*.txt"), tmp_path) == [".a.txt"]


def test_a_name_may_begin_with_any_other_sign(tmp_path):
    wanted = ["#b.txt", "_c.txt", "d/~e.txt", "~/f.txt", "~a.txt"]
    for name in wanted:
        text(tmp_path / name)
    assert names(places.below(tmp_path), tmp_path) == wanted


def test_patterns_mean_what_they_did(tmp_path, monkeypatch):
    for name in ("a.txt", "b/c.txt", "b/d/e.txt", "x[1].txt", "x1.txt"):
        text(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in places.matching("**")] == ["a.txt", "b/c.txt", "b/d/e.txt", "x1.txt", "x[1].txt"]
    assert [str(path) for path in places.matching("b/**/*.txt")] == ["b/c.txt", "b/d/e.txt"]
    assert [str(path) for path in places.matching("./?.txt")] == ["a.txt"]
    assert [str(path) for path in places.matching("x[1].txt")] == ["x[1].txt"]
    assert places.matching("a.txt/*") == places.matching("nowhere/*") == []


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    text(tmp_path / "a.txt")
    broken = tmp_path / "b.txt"
    broken.symlink_to("nowhere.txt")
    for look in (lambda: places.below(tmp_path), lambda: places.matching(f"{tmp_path}/*.txt")):
        with refused(InputError, r"nowhere\.txt", path=str(broken)):
            look()
    assert places.matching(f"{tmp_path}/a*") == [tmp_path / "a.txt"]


SEARCH = """
import sys
from pipeline.storage import places
from pipeline.errors import InputError
for place in sys.argv[1:]:
    try:
        found = places.matching(place) if "*" in place else places.below(places.at(place))
        print(len(found))
    except InputError as error:
        print(error.path)
"""


def test_a_folder_without_permission_is_named(root, tmp_path):
    text(tmp_path / "mix" / "a.txt")
    closed = text(tmp_path / "mix" / "closed" / "b.txt").parent
    text(tmp_path / "disk" / "a.txt")
    lost = text(tmp_path / "disk" / "lost+found" / "b.txt").parent  # as every disk has it
    for folder in (closed, lost):
        folder.chmod(0)
    wanted = ["mix", "mix/**/*.txt", "mix/*/*.txt", "mix/*.txt", "disk"]
    done = unprivileged(root, "-c", SEARCH, *(f"{tmp_path}/{place}" for place in wanted))
    for folder in (closed, lost):
        folder.chmod(0o755)
    assert done.stdout.split() == [str(closed)] * 3 + ["1", "1"], done.stderr


@pytest.mark.parametrize("place", ["closed", "closed/a.txt", "closed/*.txt", "."])
def test_prepare_says_in_one_line_what_it_may_not_read(root, tmp_path, place):
    text(tmp_path / "corpus" / "b.txt")
    closed = text(tmp_path / "corpus" / "closed" / "a.txt").parent
    closed.chmod(0)
    words = ["+corpus=text", f"corpus.path={tmp_path}/corpus/{place}", f"vocab={tmp_path}"]
    done = unprivileged(root, "-m", "pipeline.prepare", *words, f"out={tmp_path}/out")
    closed.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"{closed}: cannot be read (permission denied)" in done.stderr.lower()
