"""A secret that the user's configuration holds, or the environment, stays where it is."""

import html
import json
import os
import re
import shlex
import sys
from urllib.parse import quote, quote_plus

import pytest
import yaml

from pipeline.config import CorpusConfig, DownloadConfig, DownloadFile, ExecutorConfig
from pipeline.console.redact import redact
from pipeline.errors import ConfigError
from pipeline.orchestration import graph, run_plan
from pipeline.orchestration.slurm import SlurmExecutor
from pipeline.records.manifest import Result
from pipeline.stages import fingerprints, stage
from tests.pipeline.orchestration.test_graph import composed_run
from tests.support import forked
from tests.support.refusals import refused

SECRET = "hf_Zm9vYmFyYmF6"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass@host/file", "https://***@host/file"),
        ("s3://KEY:se/cret@host", "s3://KEY:se/cret@host"),  # a slash ends the host
        ('{"url": "http://token@a.b/c", "mail": "a@b.c"}', '{"url": "http://***@a.b/c", "mail": "a@b.c"}'),
        ("see https://a.b/c and write to a@b.c", "see https://a.b/c and write to a@b.c"),
        (f"https://a.b/c?token={SECRET}", "https://a.b/c?token=***"),
        ("HOME is not one", "HOME is not one"),
        ("https://me:p@ssw0rd@host/a@b", "https://***@host/a@b"),
        (f"{SECRET}-and-more", "***"),  # the value of one variable begins with that of another
        ("https://me:it's@host/a", "https://***@host/a"),
        ("'https://host','a@b.c'", "'https://host','a@b.c'"),
        ("abfs://data@account.dfs.core.windows.net/a", "abfs://data@account.dfs.core.windows.net/a"),
    ],
)
def test_passwords_and_keys_become_stars(text, shown, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("HOTKEY", "HOME is not one")
    monkeypatch.setenv("OTHER_TOKEN", f"{SECRET}-and-more")
    assert redact(text) == shown


WRITERS = {
    "plainly": str,
    "by Python": repr,
    "as bytes": lambda text: repr(text.encode()),
    "in JSON": json.dumps,
    "in JSON of letters": lambda text: json.dumps(text, ensure_ascii=False),
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "in YAML": lambda text: yaml.safe_dump({"url": text}),
    "for a shell": shlex.quote,
    "in HTML": html.escape,
    "in a URL": quote,
    "in all of a URL": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "in a URL in a URL": lambda text: quote(quote(text)),
    "in a record": lambda text: str(DownloadFile(url=text)),
}


SECRETS = ['quo"ted\\word', "it's\\hidden", "tab\tulator", "pässwörter", "a b&c=d/e+f", "p@ss:w%20rd", "line\nbreak"]


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("secret", [*SECRETS, "s'\"s3", "日本語の秘密"])
def test_a_secret_is_hidden_however_it_is_written(secret, writer, monkeypatch):
    monkeypatch.setenv("CORPUS_PASSWORD", secret)
    shown, expected = redact(writer(f"x {secret} y")), writer("x SECRET y").replace("SECRET", "***")
    assert re.sub(r"[^\w*]", "", shown) == re.sub(r"[^\w*]", "", expected)  # but for the marks


NAMES = "HF_TOKEN FTP_PASS SMTP_PASSWD MYSQL_PWD PGPASSWORD KEY_PASSPHRASE SSHPASS STORE_CREDENTIALS"
NAMES += " AZURE_STORAGE_SAS A_SECRET db_password API_KEYS"


@pytest.mark.parametrize("name", NAMES.split())
def test_a_variable_whose_name_says_so_is_secret(name, monkeypatch):
    monkeypatch.setenv(name, SECRET)
    assert redact(f"sent {SECRET}") == "sent ***"


def test_what_is_no_secret_stays(monkeypatch):
    for name in ("PWD", "OLDPWD", "COMPASS", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID"):
        monkeypatch.setenv(name, f"/home/{SECRET}")
    assert redact(f"in /home/{SECRET}") == f"in /home/{SECRET}"


def test_a_short_secret_is_hidden_where_it_is_a_word(monkeypatch):
    monkeypatch.setenv("FTP_PASS", "step")
    monkeypatch.setenv("OTHER_PASS", "s3cr3t!")
    monkeypatch.setenv("FLAG_KEY", "1")
    assert redact("step 1 of stepping: s3cr3t!, 's3cr3t!', as3cr3t!") == ("*** 1 of stepping: ***, '***', as3cr3t!")


def test_the_long_parts_of_a_secret_are_hidden_by_themselves(monkeypatch):
    key, line = SECRET * 3 + "==", SECRET[::-1] * 4
    monkeypatch.setenv("STORE_CONNECTION_STRING", f"AccountName=me;AccountKey={key};Suffix=net")
    monkeypatch.setenv("STORE_CREDENTIALS", json.dumps({"private_key": f"BEGIN\n{line}\n"}))
    assert redact(f"account me, {key} and {line}") == "account me, *** and ***"


SIGNED = "/a.gz?X-Amz-Expires=60&X-Amz-Signature={}|/a.gz?X-Amz-Security-Token={}&x=1|/a.gz?X-Goog-Signature={}|"
SIGNED += "/a.gz?sv=2024&sig={}%2B%3D|/a.gz?Signature={}~|/a.gz?token={}#part|/a.gz?access_token={}|/a.gz?apiKey={}|"
SIGNED += "/a.gz?api_key={}|/a.gz?password=it's{}|/?u=https%3A%2F%2Fb%3Fsig%3D{}|/a.gz?a=1;auth={}|?jwt={}|"
SIGNED += "?key=AIza{}012345"
SIGNED = [f"https://h{each.format(SECRET)}" for each in SIGNED.split("|")]


@pytest.mark.parametrize("url", SIGNED)
def test_what_signs_an_address_is_hidden(url):
    for text in (url, f"'{url}'", json.dumps({"url": url, "b": 1}), f"| from | {url} |"):
        assert SECRET not in redact(text)
    assert json.loads(redact(json.dumps({"url": url, "b": 1})))["b"] == 1
    assert redact(url).startswith("https://h")


def test_what_a_query_asks_for_stays():
    url = "https://h/get?file=keys/tokens.gz&key=data/2024/a.gz&tokens=5&design=x&author=sig"
    assert redact(url) == url


@pytest.mark.parametrize("cut", range(30, 50))
def test_no_part_of_a_secret_is_left_where_a_setting_is_cut(cut, monkeypatch):
    """A part is neither a whole address nor the value of a variable, which redacting looks for."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr(fingerprints, "LONGEST_SETTING", cut)
    for url in (f"http://me:{SECRET}@host/a.gz", f"https://host/?token={SECRET}"):
        changed = {"corpus.files": ([], [DownloadFile(url=url)])}
        assert SECRET[:3] not in redact(fingerprints.differences(changed))


def test_a_manifest_has_no_secret_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS_PASSWORD", SECRET)
    monkeypatch.setenv("NUMBER_KEY", "8888")  # a number is not a word of a text
    url = f"https://me:{SECRET}@host/corpus.gz"
    corpus = CorpusConfig(name="x", reader="text", files=[DownloadFile(url=url)])
    config = DownloadConfig(corpus=corpus, out=str(tmp_path / "out"), tries=8888)
    monkeypatch.setattr(stage, "fingerprint", lambda *_: ("f" * 64, {}))
    stage.run("download", config, lambda c, out: Result(summary=url, figures={"url": url}))
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert SECRET not in text
    assert json.loads(text)["config"]["tries"] == 8888
    assert json.loads(text)["figures"]["url"] == "https://***@host/corpus.gz"


@pytest.mark.slow
def test_no_output_of_a_command_has_the_secrets_of_its_environment(tmp_path):
    """Neither what it prints nor any file, whether it works or not."""
    (tmp_path / "a.txt").write_text("Some words of a text. They are enough.\n" * 50)
    secrets = {"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET * 3, "A_SECRET_KEY": SECRET[::-1]}
    for words in (
        ["pipeline.vocab", "+corpus=text", f"corpus.path={tmp_path}/a.txt", "size=100"],
        ["pipeline.vocab", "+corpus=text", "corpus.path='${oc.env:HF_TOKEN}'"],
        [
            "pipeline.download",
            "+corpus=simplewiki",
            "tries=1",
            "timeout=1",
            "corpus.files=[{url: 'http://me:${oc.env:HF_TOKEN}@127.0.0.1:9/a.gz'}]",
        ],
    ):
        out = tmp_path / words[0]
        done = forked.module(*words, f"out={out}", env=os.environ | secrets)
        assert done.returncode in (0, 2), done.stderr
        written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
        for content in (done.stdout.encode(), done.stderr.encode(), *written):
            for value in secrets.values():
                assert value.encode() not in content


def test_a_traceback_has_no_secret(root):
    """Nor what a library prints or logs: of a pod, its end is the termination message."""
    code = (
        "import logging, os, sys, threading, warnings\n"
        "from pipeline.console import output\n"
        "output.outlive_readers()\n"
        "secret = os.environ['HF_TOKEN']\n"
        "logging.error('log %s', secret); warnings.warn(secret); print('out', [secret])\n"
        "worker = threading.Thread(target=lambda: open(secret)); worker.start(); worker.join()\n"
        "raise ValueError(f'no answer from https://me:{secret}@host?sig={secret} {secret!r}')\n"
    )
    done = forked.fresh("-c", code, env=os.environ | {"HF_TOKEN": 'hf\'s "secret"', "PYTHONPATH": str(root)})
    assert (done.returncode, done.stdout) == (1, "out ['***']\n")
    assert 'secret"' not in done.stderr.replace('\\"', '"').replace("environ['HF_TOKEN']", "")
    assert done.stderr.count("***") >= 5
    assert "Traceback" in done.stderr


def test_a_command_without_a_configuration_hides_secrets_too(tmp_path):
    (tmp_path / SECRET).touch()
    done = forked.module("pipeline.common.heartbeat", tmp_path, "-1", env=os.environ | {"HF_TOKEN": SECRET})
    assert (done.returncode, done.stderr) == (1, "no heartbeat of *** for -1 s\n")


def test_the_command_of_a_run_has_no_secret_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FTP_PASS", "it's mine")
    urls = ["ftp://host/it's mine/it%27s%20mine", f"https://me:it's@host/?sig={SECRET}"]
    monkeypatch.setattr(sys, "argv", ["run", *urls, "seed=1"])
    words = shlex.split(run_plan.record_run(composed_run(f"workdir={tmp_path}"), []).command)
    assert words[3:] == ["ftp://host/***/***", "https://***@host/?sig=***", "seed=1"]


def test_a_job_of_slurm_gets_its_settings_by_a_file_of_its_owner(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name, script in {
        "sbatch": f'echo "$@" > {tmp_path}/asked; cat >> {tmp_path}/asked; echo 7',
        "squeue": "",
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    config = composed_run(f"workdir={tmp_path}/work", "convert.examples=['private [MASK]']", "executor=slurm")
    made = run_plan.record_run(config, graph.plan_graph(config))
    made.write()
    SlurmExecutor(ExecutorConfig(name="slurm", wait=False), made).run([made.stages["vocab"]])
    assert "private" not in (tmp_path / "asked").read_text()
    assert "private" in (tmp_path / "work" / "run.json").read_text()
    assert (tmp_path / "work" / "run.json").stat().st_mode & 0o777 == 0o600


def test_an_address_with_a_secret_goes_to_no_other_machine(tmp_path):
    words = [f"workdir={tmp_path}/work", f"corpus.files=[{{url: 'https://me:{SECRET}@host/a b #1'}}]"]
    config = composed_run(*words, "executor=slurm")
    with refused(ConfigError, key="download.corpus.files.0.url") as caught:
        run_plan.record_run(config, graph.plan_graph(config))
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError):  # within a job of Slurm, whose steps run the stages
        run_plan.record_run(composed_run(*words), graph.plan_graph(composed_run(*words)), here=False)
