"""What a run logs can be read back: from its own rows, and from the files of Weights & Biases."""

import contextlib
import json
import os
import pty
import re
import shutil
import termios
from pathlib import Path

import pytest
import wandb
from wandb.sdk.lib import wbauth

from model.config import TrackingConfig
from model.tracking.metrics_file import METRICS, RUN_ID, read_metrics, swap_metrics_files
from model.tracking.tracker import Tracker
from model.tracking.wandb import has_key, mode_of
from pipeline.errors import ConfigError
from tests.support import forked
from tests.support.refusals import refused
from tests.support.servers.wandb_server import KEY, WandbServer, environment
from tests.support.terminal import plain
from tests.support.wandb_files import history, of


def run(out, start, steps, **settings):
    config = TrackingConfig(name="wandb", mode="offline")
    tracker = Tracker(config, out, 0, start, 10, {"seed": 7, **settings})
    for step in steps:
        tracker.log_metrics("train", step, {"loss": 8 / step, "tokens_per_second": 100.0 * step})
        tracker.step_done(step)
    tracker.log_metrics("validation", [start, *steps][-1], {"masked_lm_accuracy": 0.25})
    tracker.close()


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run that was logged to step 4, and resumed after step 3."""
    folder = tmp_path_factory.mktemp("group") / "train"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANDB_API_KEY", raising=False)
        run(folder, 0, [1, 2, 3, 4])
        run(folder, 3, [4, 5, 6])
        wandb.teardown()  # its service writes until it ends, and would serve the tests' processes
    return folder


@pytest.fixture
def out(logged, tmp_path, monkeypatch):
    """A copy of it, for a test that goes on with it."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return Path(shutil.copytree(logged, tmp_path / logged.parent.name / "train", symlinks=True))


def test_weights_and_biases_holds_what_was_logged(logged):
    rows = [row for row in history(logged) if "train/loss" in row]
    assert [row["_step"] for row in rows] == [1, 2, 3, 4, 5, 6], "the newest folder has all of them"
    assert all(row["train/loss"] == 8 / row["_step"] for row in rows)
    last = [row for row in history(logged) if "validation/masked_lm_accuracy" in row][-1]
    assert (last["validation/masked_lm_accuracy"], last["_step"]) == (0.25, 6)


def test_a_resumed_run_keeps_its_id_and_its_settings_and_is_one_job_of_its_group(logged):
    runs = of(logged, "run")
    assert len({run.run_id for run in runs}) == 1
    assert {(run.run_group, run.job_type) for run in runs} == {(logged.parent.name, "train")}
    assert {item.key: json.loads(item.value_json) for item in runs[0].config.update}["seed"] == 7


@pytest.mark.parametrize("renames", range(5))
def test_curves_stay_apart_when_a_start_is_killed(tmp_path, monkeypatch, renames):
    one, other = (tmp_path / "checkpoints" / name for name in ("aaaa", "bbbb"))

    def start(run, *rows):
        swap_metrics_files(tmp_path, run)
        with (tmp_path / METRICS).open("a") as file:
            file.writelines(rows)
        return (tmp_path / METRICS).read_text()

    start(one, "1")
    start(other, "2")
    replace, left = Path.replace, [renames]

    def killed(path, target):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with contextlib.suppress(KeyboardInterrupt):
            swap_metrics_files(tmp_path, one)
    assert (start(one), start(other)) == ("1", "2")


def test_a_training_with_other_settings_has_a_curve_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)

    def trained(name, start, steps):
        swap_metrics_files(tmp_path, tmp_path / "checkpoints" / name)
        run(tmp_path, start, steps)
        rows = read_metrics(tmp_path)
        return [r["step"] for r in rows if r["kind"] == "train"], (tmp_path / RUN_ID).read_text()

    first, one = trained("aaaa", 0, [1, 2, 3])
    other, two = trained("bbbb", 0, [1, 2])
    again, three = trained("aaaa", 3, [4])
    more, four = trained("bbbb", 2, [3])
    wandb.teardown()
    assert (first, other, again, more) == ([1, 2, 3], [1, 2], [1, 2, 3, 4], [1, 2, 3])
    assert (one, two) == (three, four)
    assert one != two


def test_what_starts_again_at_step_0_is_a_run_of_its_own(out):
    before = (out / RUN_ID).read_text()
    run(out, 0, [1, 2])
    wandb.teardown()
    runs = of(out, "run")
    assert {run.run_id for run in runs} == {before, (out / RUN_ID).read_text()}
    assert before != (out / RUN_ID).read_text()


def synchronised(out):
    """What W&B's own reader of offline files sends to its service: a run's name, itself, and its rows by step."""
    server = WandbServer()
    variables = environment(out, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
    try:
        done = forked.fresh("-m", "wandb", "sync", *out.glob("wandb/offline-run-*"), cwd=out, env=variables)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    ((name, run),) = server.runs.items()
    logged = {}
    for row in server.history(name):
        logged.setdefault(row["_step"], {}).update({key: value for key, value in row.items() if "/" in key})
    return name, run, logged


def test_offline_parts_are_synchronised_into_one_run_of_the_group(out):
    name, run, logged = synchronised(out)
    assert name == (out / RUN_ID).read_text()
    assert (run["groupName"], run["jobType"]) == (out.parent.name, "train")
    assert {step: row["train/loss"] for step, row in logged.items()} == {step: 8 / step for step in range(1, 7)}


HEAD = """
import os, signal, sys
from pathlib import Path
import psutil
from model.config import TrackingConfig
from model.tracking.tracker import Tracker
"""
LOST = """
out, start, last, end = Path(sys.argv[1]), *map(int, sys.argv[2:])
tracker = Tracker(TrackingConfig(name="wandb", mode="offline"), out, 0, start, end, {})
for step in range(start + 1, last + 1):
    tracker.log_metrics("train", step, {"loss": 8 / step, "tokens": 1000 * step, "mfu": 0.1 + last})
    if step % 10 == 0:
        tracker.log_metrics("validation", step, {"masked_lm_accuracy": step / end})
if last < end:  # the machine is lost
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os.kill(os.getpid(), signal.SIGKILL)
tracker.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_kills_and_resumes_w_and_bs_own_reader_finds_each_row_of_ours(tmp_path):
    for start, last in ((0, 240), (200, 250), (200, 450)):
        done = forked.fresh("-c", HEAD + LOST, tmp_path, start, last, 450, env=environment(tmp_path))
        assert done.returncode == (0 if last == 450 else -9)
    ours = {}
    for row in read_metrics(tmp_path):
        kind, step = row.pop("kind"), row.pop("step")
        ours.setdefault(step, {}).update({f"{kind}/{key}": value for key, value in row.items()})
    assert (list(ours), synchronised(tmp_path)[2]) == (list(range(1, 451)), ours)


def test_an_alert_reaches_weights_and_biases(tmp_path):
    tracker = Tracker(TrackingConfig(name="wandb", mode="offline"), tmp_path, 0, 0, 10, {})
    tracker.alert("Training diverged", "after step 7")
    tracker.close()
    wandb.teardown()
    assert [(one.title, one.text) for one in of(tmp_path, "alert")] == [("Training diverged", "after step 7")]


def test_own_rows_are_not_written_twice_after_a_resume_or_a_kill(out):
    assert [row["step"] for row in read_metrics(out) if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    run(out, 6, [])
    assert [row["step"] for row in read_metrics(out) if row["kind"] == "validation"] == [6]


def test_training_goes_on_without_weights_and_biases(tmp_path, monkeypatch, capsys):
    def refuse(**settings):
        raise RuntimeError("run ID is in use")

    monkeypatch.setattr(wandb, "init", refuse)
    run(tmp_path, 0, [1, 2])
    assert "run ID is in use" in capsys.readouterr().out
    assert len(read_metrics(tmp_path)) == 3


BEREFT = """
tracker = Tracker(TrackingConfig(name="wandb", mode="offline"), Path(sys.argv[1]), 0, 0, 9, {})
tracker.log_metrics("train", 1, {"loss": 4.0})
service = psutil.Process().children()
assert service
for process in service:
    process.terminate()
psutil.wait_procs(service, timeout=20)
for step in range(2, 2 + int(sys.argv[2])):
    tracker.log_metrics("train", step, {"loss": 4.0})
tracker.close()
"""


@pytest.mark.parametrize("more", [0, 3])
def test_the_end_of_its_service_costs_training_nothing(tmp_path, more):
    done = forked.fresh("-c", HEAD + BEREFT, tmp_path, more)
    assert done.returncode == 0, done.stderr
    assert (done.stderr, done.stdout.count("warning: ")) == ("", 1)
    assert len(read_metrics(tmp_path)) == 1 + more


ONLINE = """
tracker = Tracker(TrackingConfig(name="wandb"), Path(sys.argv[1]), 0, 0, 9, {})
for step in range(1, 4):
    tracker.log_metrics("train", step, {"loss": 4.0 / step})
tracker.close()
"""


@pytest.mark.slow
def test_a_key_without_a_network_leaves_a_run_that_can_be_synchronised_later(tmp_path):
    """Nothing listens at that port: the attempt to go online fails as it does without a network."""
    away = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "2"}
    done = forked.fresh("-c", HEAD + ONLINE, tmp_path, env=os.environ | away)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("warning: ") == 1, done.stdout
    assert "offline" not in done.stdout
    rows = [row for row in history(tmp_path) if "train/loss" in row]
    assert [row["_step"] for row in rows] == [1, 2, 3]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home without keys."""
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_key_that_wandb_stores_is_seen(home, monkeypatch):
    for address in (wandb.Settings().base_url, "https://wandb.example.org"):
        monkeypatch.setenv("WANDB_BASE_URL", address)
        assert not has_key()
        wbauth.write_netrc_auth(host=address, api_key="0" * 40)
        assert has_key()


def test_a_key_of_an_earlier_login_is_seen_wherever_it_is_stored(home, monkeypatch):
    wbauth.write_netrc_auth(host="https://api.wandb.ai", api_key="0" * 40)
    assert has_key()
    (home / ".netrc").rename(home / "keys")
    assert not has_key()
    monkeypatch.setenv("NETRC", "~/keys")
    assert has_key()
    monkeypatch.delenv("NETRC")
    monkeypatch.setenv("WANDB_IDENTITY_TOKEN_FILE", "token")
    assert has_key()


BAR = """
tracker = Tracker(TrackingConfig(name="none"), Path(sys.argv[1]), 0, 0, 600, {})
figures = {"loss": 4.0, "masked_lm_accuracy": 0.5, "gradient_norm": 1.0, "memory_gib": 3.0,
           "learning_rate": 1e-4, "tokens_per_second": 1e6, "mfu": 0.5, "data_wait_share": 0.01}
tracker.step_done(300)
tracker.log_metrics("train", 300, figures)
tracker.close()
"""


def test_a_narrow_terminal_shows_the_bar_and_the_time_that_is_left(tmp_path):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    forked.fresh("-c", HEAD + BAR, tmp_path, capture_output=False, stderr=theirs, check=True)
    drawn = plain(os.read(ours, 9999))
    os.close(ours)
    os.close(theirs)
    lines = [line.strip() for line in drawn.replace("\n", "\r").split("\r")]
    assert all(len(line) <= 80 for line in lines)
    assert any(re.match(r"train ━{8}.{8}  50% 300 of 600 steps, .*loss 4.000, ", line) for line in lines), lines


MODES = {"": "online", "MODE=offline": "offline", "MODE=dryrun": "offline", "MODE=disabled": "disabled"}
MODES |= {"MODE=online": "online", "DISABLED=true": "disabled", "DISABLED=false": "online"}


@pytest.mark.parametrize(("variables", "mode"), [*MODES.items(), ("DISABLED=1 MODE=online", "disabled")])
def test_with_a_key_the_variables_of_wandb_say_whether_it_is_sent(home, monkeypatch, variables, mode):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    for name, value in (word.split("=") for word in variables.split()):
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert [mode_of(typed) for typed in ("auto", "online", "offline")] == [mode, "online", "offline"], "typed wins"


@pytest.mark.parametrize("value", ["", "off", "OFFLINE"])
def test_a_mode_that_wandb_refuses_sends_nothing(home, monkeypatch, value):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_MODE", value)
    with refused(ConfigError, key="tracking.mode"):
        mode_of("auto")


def test_what_is_disabled_is_only_in_our_own_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker = Tracker(TrackingConfig(name="wandb"), tmp_path, 0, 0, 10, {})
    tracker.log_metrics("train", 1, {"loss": 4.0})
    tracker.close()
    assert len(read_metrics(tmp_path)) == 1
    assert not (tmp_path / "wandb").exists()


@pytest.mark.parametrize(("typed", "project"), [(None, "theirs"), ("ours", "ours")])
def test_names_of_the_environment_are_taken_unless_typed(tmp_path, monkeypatch, typed, project):
    for name, value in {"PROJECT": "theirs", "ENTITY": "team", "RUN_ID": "run7"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.teardown()  # it has read the environment
    config = TrackingConfig(name="wandb", mode="offline", project=typed)
    Tracker(config, tmp_path, 0, 0, 10, {}).close()
    wandb.teardown()
    (run,) = of(tmp_path, "run")
    assert (run.project, run.entity, run.run_id) == (project, "team", "run7")
    assert (tmp_path / RUN_ID).read_text() == "run7"


@pytest.mark.parametrize("place", range(3))
def test_a_resume_leaves_out_damaged_rows_and_says_so(tmp_path, capsys, place):
    """Each bit of a byte: of a name, of a mark of JSON, of the first byte of a character."""
    swap_metrics_files(tmp_path, tmp_path / "checkpoints" / "aaaa")
    lines = [{"kind": "train", "step": step, "loss": 1.0} for step in (1, 2, 3)]
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    where = text.index(b"\n") + (3, 10, 20)[place]
    for bit in range(8):
        flipped = bytearray(text)
        flipped[where] ^= 1 << bit
        (tmp_path / METRICS).write_bytes(flipped)
        Tracker(TrackingConfig(name="none"), tmp_path, 0, 3, 10, {}).close()
        rows = read_metrics(tmp_path)
        assert {row["step"] for row in rows} >= {1, 3}
        assert ("line 2" in capsys.readouterr().out) == (len(rows) < 3)


@pytest.mark.parametrize("name", [RUN_ID, ".metrics-of"])
def test_a_damaged_name_is_as_none(tmp_path, name):
    swap_metrics_files(tmp_path, tmp_path / "checkpoints" / "aaaa")
    (tmp_path / METRICS).write_text(json.dumps({"kind": "train", "step": 1}) + "\n")
    (tmp_path / name).write_bytes(b"\xff\x00/..")
    swap_metrics_files(tmp_path, tmp_path / "checkpoints" / "aaaa")
    run(tmp_path, 1, [2])
    wandb.teardown()
    assert [row["step"] for row in read_metrics(tmp_path) if row["kind"] == "train"] == [1, 2]


# With a key, W&B's service gets what training logs; a resumed training continues its run.


TRAIN = """
out, start, steps = Path(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3:]))
tracker = Tracker(TrackingConfig(name="wandb", mode="online"), out, 0, start, 10, {"seed": 7})
for step in steps:
    tracker.log_metrics("train", step, {"loss": 8 / step})
tracker.alert("Training stopped", f"after step {steps[-1]}")
tracker.close()
"""


@pytest.fixture
def server():
    """W&B's interface on loopback."""
    made = WandbServer()
    yield made
    made.stop()


def train(server, out, start, *steps):
    """Log some steps in a process of their own, as one start of a training does."""
    online = environment(out, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
    done = forked.fresh("-c", HEAD + TRAIN, out, start, *steps, env=online)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout


@pytest.mark.slow
def test_a_resumed_training_continues_its_run(tmp_path, server):
    out = tmp_path / "wiki" / "train"
    out.mkdir(parents=True)
    train(server, out, 0, 1, 2, 3, 4)
    train(server, out, 3, 4, 5, 6)  # saved at step 3, killed after step 4
    ((name, run),) = server.runs.items()
    assert name == (out / RUN_ID).read_text()
    assert (run["groupName"], run["jobType"]) == ("wiki", "train")
    assert json.loads(run["config"])["seed"]["value"] == 7
    rows = [(row["_step"], row["train/loss"]) for row in server.history(name)]
    assert rows == [(step, 8 / step) for step in range(1, 7)], "each step once"
    assert server.summary(name)["train/loss"] == 8 / 6
    alerts = [one["text"] for one in server.asked_for("NotifyScriptableRunAlert")]
    assert alerts == ["after step 4", "after step 6"]
