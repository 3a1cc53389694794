"""What is asked of deepspeed and torchrun, and what we add."""

import pytest

from model.launching.command_line import LauncherCommand, rank_hosts, read_hosts
from model.launching.ssh_hosts import SshHosts, variables_to_send
from pipeline.errors import ConfigError
from tests.support.refusals import refused

DEEPSPEED = ["/venv/bin/deepspeed", "--hostfile", "H", "--master_port=29", "model/train.py", "a=b"]


def test_a_command_line_is_taken_apart_and_put_together():
    command = LauncherCommand.parse(DEEPSPEED)
    assert command.argv() == DEEPSPEED
    assert (command.name, command.option("--hostfile", "-H")) == ("deepspeed", "H")
    assert command.option("--master-port") == "29"
    assert command.option("--no_ssh") is None
    assert command.without("--hostfile", "--master_port").options == []
    assert command.setting("a") == "b"
    flag = LauncherCommand.parse(["deepspeed", "--no_ssh", "--node_rank", "1", "model/train.py"])
    assert flag.without("--no_ssh").options == ["--node_rank", "1"]


def test_a_launcher_on_one_machine_gets_a_free_port():
    for words in (["deepspeed", "model/train.py"], ["torchrun", "model/train.py"]):
        port = LauncherCommand.parse(words).with_free_port().option("--master_port")
        assert 1024 < int(port) < 65536


TYPED = "deepspeed --hostfile H model/train.py|python train.py|torchrun --nnodes 2 model/train.py|"
TYPED += "torchrun --standalone train.py|torchrun --master-port 29600 train.py"


@pytest.mark.parametrize("words", [DEEPSPEED, *(line.split() for line in TYPED.split("|"))])
def test_a_port_that_is_asked_for_or_agreed_on_stays(words):
    assert LauncherCommand.parse(words).with_free_port().argv() == words


@pytest.mark.parametrize("chosen", [["--log_level=info"], ["--log_level", "info"], ["-q"]])
def test_the_launchers_log_is_shown_to_those_who_ask(chosen):
    command = LauncherCommand.parse(["deepspeed", *chosen, "model/train.py"])
    assert command.quiet() == command
    silent = LauncherCommand.parse(["deepspeed", "model/train.py", "steps=9"]).quiet()
    assert silent.argv()[1:] == ["--log_level", "critical", "model/train.py", "steps=9"]
    other = LauncherCommand.parse(["torchrun", "model/train.py"])
    assert other.quiet() == other


def test_hosts_are_read_without_comments(tmp_path):
    (tmp_path / "hosts").write_text("# two\nnode0 slots=2\n\nnode1 slots=4  # the big one\n")
    assert read_hosts(tmp_path / "hosts") == {"node0": 2, "node1": 4}


def test_each_rank_has_its_host_though_hosts_differ_in_slots():
    assert rank_hosts({"node0": 1, "node1": 3}) == "node0,node1,node1,node1"


@pytest.mark.parametrize(
    ("text", "line"), [("node0", 1), ("a slots=1\nnode0 slots=x", 2), ("a slots=1\na slots=1", 2), ("a slots=0", 1)]
)
def test_a_wrong_line_of_hosts_is_named(tmp_path, text, line):
    (tmp_path / "hosts").write_text(text)
    with refused(ConfigError, key="hostfile", line=line, value=str(tmp_path / "hosts")):
        read_hosts(tmp_path / "hosts")


def test_no_hosts_and_no_file_are_named(tmp_path):
    (tmp_path / "hosts").write_text("# nobody\n")
    for name in ("hosts", "nowhere"):
        with refused(ConfigError, key="hostfile"):
            read_hosts(tmp_path / name)


@pytest.mark.parametrize(
    "option", ["--include=a", "--exclude=a", "--num_nodes=1", "--launcher=openmpi", "--num_gpus=2"]
)
def test_options_that_would_choose_other_hosts_are_refused(option):
    command = LauncherCommand.parse(["deepspeed", "--hostfile", "H", option, "model/train.py"])
    with refused(ConfigError, key=option.partition("=")[0]):
        SshHosts(command, {"a": 1, "b": 1})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make the working directory empty, and another folder home."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_settings_of_libraries_go_along_and_nothing_else(folder):
    environment = {"NCCL_DEBUG": "INFO", "WANDB_API_KEY": "x", "PATH": "/bin", "HOME": "/root", "OMP_NUM_THREADS": "2"}
    environment |= {"CUDA_VISIBLE_DEVICES": "3", "GOOGLE_CLOUD_PROJECT": "p", "AZURE_STORAGE_ACCOUNT": "a"}
    sent = {"NCCL_DEBUG", "WANDB_API_KEY", "OMP_NUM_THREADS", "GOOGLE_CLOUD_PROJECT", "AZURE_STORAGE_ACCOUNT"}
    assert variables_to_send(environment).keys() == sent


def test_what_deepspeeds_file_lists_goes_along_as_it_is(folder):
    (folder / ".deepspeed_env").write_text("MINE=home\nNCCL_DEBUG=INFO\n")
    listed = "# ours\nMINE=a \"b\",$HOME 'c'\n\nEMPTY=\n"
    (folder / "here" / ".deepspeed_env").write_text(listed)
    assert variables_to_send({"NCCL_DEBUG": "WARN"}) == {"MINE": "a \"b\",$HOME 'c'", "EMPTY": "", "NCCL_DEBUG": "INFO"}
    other = folder / "here" / "other"
    other.write_text("MINE=1\nexport\n")
    with refused(ConfigError, path=str(other), line=2):
        variables_to_send({"DS_ENV_FILE": "other"})
