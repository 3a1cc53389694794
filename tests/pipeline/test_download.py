"""Downloads from a real server that breaks, changes and lies."""

import gzip
import hashlib
import re
import resource
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline import download
from pipeline.config import CorpusConfig, DownloadConfig, DownloadFile
from pipeline.errors import ConfigError, InputError
from pipeline.storage import budget, http_transfer
from pipeline.storage.http_transfer import RetryPolicy
from tests.support.refusals import refused

CONTENT = bytes(range(256)) * 12_000  # about 3 MB


class Server(ThreadingHTTPServer):
    """Serves `files` by path; `cuts` and `refusals` say what goes wrong with the next requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.etag = '"one"'
        self.coding = ""  # the Content-Encoding that it claims
        self.ranges = True
        self.heeds_versions = True  # honours If-Range
        self.cuts = []  # bytes after which the connection is closed
        self.refusals = []  # status codes
        self.asked = []  # path and Range of each request

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        status = server.refusals.pop(0) if server.refusals else 200
        if status == 200 and self.path not in server.files:
            status = 404
        if status != 200:
            self.send_error(status)
            return
        body, first = server.files[self.path], 0
        same = self.headers.get("If-Range", server.etag) == server.etag
        if wanted and server.ranges and (same or not server.heeds_versions):
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if first >= len(body) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.end_headers()
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        if server.coding:
            self.send_header("Content-Encoding", server.coding)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[first : first + cut])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(http_transfer, "PAUSE", 0.0)
    with Server() as made:
        made.files["/big.bin"] = CONTENT
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def config(out, *files, **settings):
    corpus = CorpusConfig(name="test", reader="books", files=list(files))
    return DownloadConfig(corpus=corpus, out=str(out), **({"timeout": 5, "tries": 3} | settings))


def run(config):
    return download.run(config)


@pytest.fixture
def big(server):
    return DownloadFile(url=server.url("/big.bin"), digest=hashlib.sha1(CONTENT).hexdigest())


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("name", "there"), [("big.bin.part", CONTENT), ("big.bin", b"something else"), ("", b"")])
def test_whatever_was_there_the_file_is_right_also_of_a_server_without_ranges(server, big, tmp_path, name, there):
    (tmp_path / name).write_bytes(there) if name else None
    server.ranges, server.cuts = False, [] if name else [1_500_000]
    run(config(tmp_path, big))
    assert (tmp_path / "big.bin").read_bytes() == CONTENT
    assert files_in(tmp_path) == ["big.bin", "manifest.json"]


FAULTS = [({"cuts": [1_500_000, 1_000_000]}, [None, "bytes=1500000-", "bytes=2500000-"])]
FAULTS += [({"cuts": [700_000] * 5}, [None, *(f"bytes={700_000 * n}-" for n in range(1, 5))])]
FAULTS += [({"refusals": [status, status]}, [None] * 3) for status in (429, 500, 503)]


@pytest.mark.parametrize(("faults", "asked"), FAULTS)
def test_what_passes_is_gone_on_with_and_progress_does_not_count(server, big, tmp_path, monkeypatch, faults, asked):
    monkeypatch.setattr(http_transfer, "PROGRESS", 100_000)
    vars(server).update(faults)
    manifest = run(config(tmp_path, big))
    assert [span for _, span in server.asked] == asked
    assert files_in(tmp_path) == ["big.bin", "manifest.json"]
    assert manifest.files["big.bin"]["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert manifest.figures["files"][0]["url"] == big.url


def test_a_later_run_goes_on_where_the_first_gave_up(server, big, tmp_path):
    server.cuts = [1000, 10, 10]
    with pytest.raises(InputError, match="1,020 bytes"):
        run(config(tmp_path, big))
    assert not (tmp_path / "big.bin").exists()
    run(config(tmp_path, big))
    assert ((tmp_path / "big.bin").read_bytes(), server.asked[-1][1]) == (CONTENT, "bytes=1020-")


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("heeds_versions", [True, False])
def test_a_file_that_changed_between_tries_is_begun_anew(server, big, tmp_path, digest, heeds_versions):
    server.heeds_versions = heeds_versions
    server.cuts = [1000, 0, 0]
    file = big if digest else DownloadFile(url=big.url)
    with pytest.raises(InputError):
        run(config(tmp_path, file))
    server.etag, server.files["/big.bin"] = '"two"', CONTENT[::-1]
    if digest:
        file.digest = hashlib.sha1(CONTENT[::-1]).hexdigest()
    run(config(tmp_path, file))
    assert (tmp_path / "big.bin").read_bytes() == CONTENT[::-1]


def test_a_part_goes_on_though_its_note_has_no_secret(server, tmp_path):
    url = server.url("/big.bin").replace("//", "//me:secret@")
    policy, part = RetryPolicy(timeout=5, tries=1), tmp_path / "big.bin.part"
    server.cuts = [1_000_000]
    with pytest.raises(InputError):
        http_transfer.fetch(url, part, policy, digest=None)
    assert "secret" not in http_transfer.note_of(part).read_text()
    http_transfer.fetch(url, part, policy, digest=None)
    assert (part.read_bytes(), server.asked[-1][1]) == (CONTENT, "bytes=1000000-")


def test_without_version_and_digest_nothing_is_gone_on_with(server, tmp_path):
    server.etag, server.cuts = "", [1000]
    manifest = run(config(tmp_path, DownloadFile(url=server.url("/big.bin"))))
    assert [asked for _, asked in server.asked] == [None, None]
    assert "1 without a checksum" in manifest.summary


def test_a_wrong_byte_is_found_and_the_file_goes(server, big, tmp_path, monkeypatch):
    server.files["/big.bin"] = CONTENT[:-1] + b"x"
    with pytest.raises(InputError, match="sha1"):
        run(config(tmp_path, big))
    assert files_in(tmp_path) == []
    usage = shutil.disk_usage(tmp_path)._replace(free=9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match="3,072,000"):
        run(config(tmp_path, big))
    with pytest.raises(InputError, match="ConnectionError"):
        run(config(tmp_path, DownloadFile(url="http://127.0.0.1:1/big.bin")))


@pytest.mark.parametrize(("status", "text"), [(404, "404 Not Found"), (403, "403 Forbidden")])
def test_what_is_not_there_is_named_at_once(server, big, tmp_path, status, text):
    server.refusals = [status]
    with pytest.raises(InputError, match=f"{re.escape(big.url)}: .*{text}"):
        run(config(tmp_path, big))
    assert len(server.asked) == 1


def test_a_disk_that_fills_meanwhile_keeps_what_came(server, big, tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    try:
        with pytest.raises(InputError, match="File too large"):
            run(config(tmp_path, big))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    run(config(tmp_path, big))
    assert server.asked[-1][1] == "bytes=1500000-"


def test_what_is_there_and_right_is_kept(server, big, tmp_path):
    run(config(tmp_path, big))
    (tmp_path / "manifest.json").unlink()
    assert run(config(tmp_path, big)).figures["files"][0]["kept"]
    assert len(server.asked) == 1


class TestAddresses:
    """Files without a checksum, of which only the address says which they are."""

    def both(self, server):
        """Return two files of one name."""
        server.files |= {"/a/text.bin": b"first", "/b/text.bin": b"second"}
        return (DownloadFile(url=server.url("/a/text.bin")), DownloadFile(url=server.url("/b/text.bin")))

    def test_a_file_of_another_address_is_fetched(self, server, tmp_path):
        first, second = self.both(server)
        run(config(tmp_path, first))
        assert not run(config(tmp_path, second)).figures["files"][0]["kept"]
        assert ((tmp_path / "text.bin").read_bytes(), len(server.asked)) == (b"second", 2)

    def test_it_is_kept_when_other_settings_change(self, server, big, tmp_path):
        first, _ = self.both(server)
        run(config(tmp_path, first))
        found = run(config(tmp_path, first, big)).figures["files"]
        assert [file["kept"] for file in found] == [True, False]

    def test_a_failure_does_not_forget_the_address(self, server, tmp_path):
        first, second = self.both(server)
        run(config(tmp_path, first))
        for url in (tmp_path).glob(".*.url"):
            url.unlink()  # as an earlier release left the folder
        server.refusals = [403]
        for _ in range(2):
            with pytest.raises(InputError):
                run(config(tmp_path, second))
            server.refusals = [403]
        server.refusals = []
        run(config(tmp_path, second))
        assert (tmp_path / "text.bin").read_bytes() == b"second"

    def test_a_folder_without_any_record_is_kept(self, server, tmp_path):
        first, _ = self.both(server)
        (tmp_path / "text.bin").write_bytes(b"first")
        assert run(config(tmp_path, first)).figures["files"][0]["kept"]
        assert not server.asked


class TestSums:
    """The publisher's list of checksums."""

    DATED = "/wiki/20261101/wiki-20261101-pages.xml.bz2"
    LATEST = "/wiki/latest/wiki-latest-pages.xml.bz2"

    @pytest.fixture
    def latest(self, server):
        server.files["/sums.txt"] = (
            f"{hashlib.md5(CONTENT).hexdigest()}  wiki-20261101-pages.xml.bz2\n"
            f"{'0' * 32}  wiki-20261101-pages.xml.bz2-rss.xml\n"
        ).encode()
        server.files[self.LATEST] = CONTENT
        return DownloadFile(url=server.url(self.LATEST), sums=server.url("/sums.txt"))

    def test_latest_is_the_date_that_the_list_names(self, server, latest, tmp_path):
        server.files[self.DATED], server.files[self.LATEST] = CONTENT, b"a newer dump"
        manifest = run(config(tmp_path, latest))
        assert (tmp_path / "wiki-latest-pages.xml.bz2").read_bytes() == CONTENT
        assert manifest.figures["files"][0]["url"] == server.url(self.DATED)

    def test_new_dumps_begin(self, server, latest, tmp_path):
        server.files[self.DATED], server.cuts = CONTENT, [9999, 1000, 0, 0]
        with pytest.raises(InputError, match="1,000 bytes"):
            run(config(tmp_path, latest))
        server.files[self.DATED.replace("1101", "1120")] = new = CONTENT[::-1]
        sums = hashlib.md5(new).hexdigest() + "  wiki-20261120-pages.xml.bz2"
        server.files["/sums.txt"] = sums.encode()
        run(config(tmp_path, latest))
        assert (tmp_path / "wiki-latest-pages.xml.bz2").read_bytes() == new

    def test_a_mirror_goes_on(self, server, big, tmp_path):
        server.files["/mirror/big.bin"], server.cuts = CONTENT, [1000, 0, 0]
        with pytest.raises(InputError):
            run(config(tmp_path, big))
        run(config(tmp_path, DownloadFile(url=server.url("/mirror/big.bin"), digest=big.digest)))
        assert server.asked[-1] == ("/mirror/big.bin", "bytes=1000-")

    def test_latest_itself_is_taken_where_no_date_is_served(self, latest, tmp_path):
        assert run(config(tmp_path, latest)).figures["files"][0]["url"] == latest.url

    def test_a_list_that_does_not_name_the_file_is_refused(self, server, latest, tmp_path):
        server.files["/sums.txt"] = b"d41d8cd98f00b204e9800998ecf8427e  other.xml.bz2\n"
        with pytest.raises(InputError, match=r"wiki-latest-pages\.xml\.bz2"):
            run(config(tmp_path, latest))

    def test_a_list_of_two_dates_is_refused(self, server, latest, tmp_path):
        server.files["/sums.txt"] += b"0" * 32 + b"  wiki-20261120-pages.xml.bz2\n"
        with pytest.raises(InputError, match="several"):
            run(config(tmp_path, latest))

    @pytest.mark.parametrize("line", ["{}  big.bin", "{} *big.bin", "{}  ./here/big.bin"])
    def test_the_usual_spellings_are_read(self, line):
        digest = hashlib.sha256(CONTENT).hexdigest()
        assert download.listed_digest(line.format(digest), "big.bin", "") == (digest, "big.bin")


def test_files_of_another_corpus_are_not_mixed_in(big, tmp_path):
    (tmp_path / "other.bz2").touch()
    with refused(InputError, path=str(tmp_path / "other.bz2")):
        run(config(tmp_path, big))


WRONG = [("http://127.0.0.1/", None, "file name"), ("ftp://127.0.0.1/a.bin", None, "ftp://")]
WRONG += [("http://127.0.0.1/a.bin", "abc", "abc"), ("http://127.0.0.1/a.bin", "z" * 32, "zzz")]


@pytest.mark.parametrize(("url", "digest", "message"), WRONG)
def test_what_cannot_be_an_address_or_a_digest_is_refused(url, digest, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run(config(tmp_path, DownloadFile(url=url, digest=digest)))
    with refused(ConfigError, key="corpus"):
        run(config(tmp_path))


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "br"])
def test_a_list_that_unpacks_to_too_much_is_refused(server, monkeypatch, coding):
    monkeypatch.setattr(budget, "DOCUMENT", 10_000)
    server.files["/sums"] = gzip.compress(b"x" * 20_000)
    server.coding = coding
    with pytest.raises(InputError):
        http_transfer.read(server.url("/sums"), http_transfer.RetryPolicy(5, 1))
    server.files["/sums"], server.coding = b"x" * 20_000, ""
    with pytest.raises(InputError, match="10,000"):
        http_transfer.read(server.url("/sums"), http_transfer.RetryPolicy(5, 1))


def test_a_list_that_a_server_packs_unasked_is_read(server):
    server.files["/sums"], server.coding = gzip.compress(b"words"), "gzip"
    policy = http_transfer.RetryPolicy(5, 1)
    assert http_transfer.read(server.url("/sums"), policy) == b"words"
