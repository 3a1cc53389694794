"""A secret that the user's configuration holds, or the environment, stays where it is."""

import json
import os
import sys
from pathlib import Path

import pytest

from pipeline.common.manifest import Manifest, Result
from pipeline.common.redact import redact
from pipeline.config import CorpusConfig, DownloadConfig, DownloadFile
from pipeline.orchestration import graph
from pipeline.stages import stage
from tests import forked

SECRET = "hf_Zm9vYmFyYmF6"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass@host/file", "https://***@host/file"),
        ("s3://KEY:se/cret@host", "s3://KEY:se/cret@host"),  # a slash ends the host
        ('{"url": "http://token@a.b/c", "mail": "a@b.c"}',
         '{"url": "http://***@a.b/c", "mail": "a@b.c"}'),
        ("see https://a.b/c and write to a@b.c", "see https://a.b/c and write to a@b.c"),
        (f"https://a.b/c?token={SECRET}", "https://a.b/c?token=***"),
        ("HOME is not one", "HOME is not one"),
        ("https://me:p@ssw0rd@host/a@b", "https://***@host/a@b"),
        (f"{SECRET}-and-more", "***"),  # the value of one variable begins with that of another
    ],
)  # fmt: skip
def test_passwords_and_keys_become_stars(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("HOTKEY", "HOME is not one")
    monkeypatch.setenv("OTHER_TOKEN", f"{SECRET}-and-more")
    assert redact(text) == shown


@pytest.mark.parametrize("secret", ['quo"ted\\word', "it's\\hidden", "tab\tulator"])
def test_a_secret_in_the_text_of_a_setting_is_hidden(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_PASSWORD", secret)
    assert redact(str(DownloadFile(url=f"ftp://host/?p={secret}"))).count("***") == 1


@pytest.mark.parametrize("cut", range(30, 50))
def test_no_part_of_a_secret_is_left_where_a_setting_is_cut(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is neither a whole address nor the value of a variable, which redacting looks for."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr(graph, "LONGEST_SETTING", cut)
    for url in (f"http://me:{SECRET}@host/a.gz", f"https://host/?token={SECRET}"):
        changed = {"corpus.files": ([], [DownloadFile(url=url)])}
        assert SECRET[:3] not in redact(graph.differences(changed))


@pytest.mark.parametrize("secret", ['quo"ted\\word', "pässwörter"])
def test_a_secret_that_json_writes_otherwise_is_hidden_too(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_PASSWORD", secret)
    for ascii_only in (True, False):
        text = json.dumps({"url": f"ftp://host/?p={secret}"}, ensure_ascii=ascii_only)
        assert json.loads(redact(text)) == {"url": "ftp://host/?p=***"}


def test_a_manifest_has_no_secret_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_PASSWORD", SECRET)
    url = f"https://me:{SECRET}@host/corpus.gz"
    corpus = CorpusConfig(name="x", reader="text", files=[DownloadFile(url=url)])
    config = DownloadConfig(corpus=corpus, out=str(tmp_path / "out"))
    monkeypatch.setattr(stage, "fingerprint", lambda *_: ("f" * 64, {}))
    stage.run("download", config, lambda c, out: Result(summary=url, figures={"url": url}))
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert SECRET not in text
    assert json.loads(text)["figures"]["url"] == "https://***@host/corpus.gz"


def test_no_output_of_a_command_has_the_secrets_of_its_environment(
    root: Path, tmp_path: Path
) -> None:
    """Neither what it prints nor any file, whether it works or not."""
    (tmp_path / "a.txt").write_text("Some words of a text. They are enough.\n" * 50)
    secrets = {"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET * 3, "A_SECRET_KEY": SECRET[::-1]}
    for words in (
        ["pipeline.vocab", "+corpus=text", f"corpus.path={tmp_path}/a.txt", "size=100"],
        ["pipeline.vocab", "+corpus=text", "corpus.path='${oc.env:HF_TOKEN}'"],
        ["pipeline.download", "+corpus=simplewiki", "tries=1", "timeout=1",
         "corpus.files=[{url: 'http://me:${oc.env:HF_TOKEN}@127.0.0.1:9/a.gz'}]"],
    ):  # fmt: skip
        out = tmp_path / words[0]
        done = forked.run(
            [sys.executable, "-m", *words, f"out={out}"],
            cwd=root, env=os.environ | secrets, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 2), done.stderr
        written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
        for content in (done.stdout.encode(), done.stderr.encode(), *written):
            for value in secrets.values():
                assert value.encode() not in content


@pytest.mark.parametrize(
    "words", [["pipeline.run", "dry_run=true"], ["pipeline.orchestration.run_stage", "download"]]
)
def test_the_reason_for_a_rerun_has_no_secret(root: Path, tmp_path: Path, words: list[str]) -> None:
    made = Manifest(
        stage="download", version=1, fingerprint="f" * 64, summary="done",
        config={"corpus": {"name": "simplewiki", "files": []}}, inputs={}, files={},
        figures={}, seconds=1.0, finished="2026-01-31T09:05:00+00:00",
    )  # fmt: skip
    (tmp_path / "download").mkdir()
    made.write(tmp_path / "download")
    url = f"http://me:{SECRET}@127.0.0.1:9/a.gz"
    done = forked.run(
        [sys.executable, "-m", *words, "+corpus=simplewiki", f"workdir={tmp_path}",
         f"corpus.files=[{{url: '{url}'}}]", "download.tries=1", "download.timeout=1"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "corpus.files" in done.stdout, done.stderr
    assert "***@" in done.stdout
    assert SECRET[:4] not in done.stdout + done.stderr
