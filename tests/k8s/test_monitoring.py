"""The alerts are what Prometheus takes, and each fires when it should."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

# Series as promtool writes them, a value a minute for an hour. An alert: in which it fires.
FIRES: dict[str, dict[str, str]] = {
    "TrainingStalled": {"bert_train_last_step_time_seconds": "0x60"},
    "TrainingSlow": {"bert_train_mfu": "0.1x60"},
    "TrainingWaitsForData": {"bert_train_data_wait_share": "0.2x60"},
    "CheckpointOld": {"bert_train_start_time_seconds": "-14000x60"},
    "TrainingDiverges": {"bert_train_loss": "2x30 4x30"},
}
HEALTHY = {
    "bert_train_last_step_time_seconds": "0+60x60",
    "bert_train_mfu": "0.4x60",
    "bert_train_data_wait_share": "0.01x60",
    "bert_train_start_time_seconds": "-14000x60",
    "bert_train_last_checkpoint_time_seconds": "0+60x60",
    "bert_train_skipped_steps": "0x60",
    "bert_train_loss": "4-0.03x60",
}


@pytest.fixture(scope="module")
def rules(root: Path) -> dict[str, Any]:
    """The groups of the PrometheusRule, as a file of Prometheus has them."""
    path = root / "k8s" / "components" / "monitoring" / "alerts.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())["spec"]
    return found


def promtool(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the checker of rules."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on this machine (Debian's package prometheus)")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)


def fired(rules: dict[str, Any], folder: Path, series: dict[str, str], wanted: list[str]) -> str:
    """What promtool says, where after an hour exactly these alerts should fire."""
    bare = json.loads(json.dumps(rules))
    for rule in bare["groups"][0]["rules"]:
        del rule["annotations"]  # they have values in them
    checks = [
        {
            "eval_time": "59m",
            "alertname": rule["alert"],
            "exp_alerts": [{"exp_labels": rule["labels"] | {"pod": "train-0"}}] if rule["alert"] in wanted else [],
        }
        for rule in bare["groups"][0]["rules"]
    ]
    (folder / "rules.yaml").write_text(yaml.safe_dump(bare))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f'{name}{{pod="train-0"}}', "values": values} for name, values in series.items()
                ],
                "alert_rule_test": checks,
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", folder / "test.yaml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_rules_are_valid(rules: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    done = promtool("check", "rules", tmp_path / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rules found" in done.stdout


@pytest.mark.parametrize("name", FIRES)
def test_an_alert_fires_alone(rules: dict[str, Any], tmp_path: Path, name: str) -> None:
    series = HEALTHY | FIRES[name]
    if name == "CheckpointOld":
        del series["bert_train_last_checkpoint_time_seconds"]
    assert fired(rules, tmp_path, series, [name]) == ""


def test_none_fires_of_a_healthy_training(rules: dict[str, Any], tmp_path: Path) -> None:
    assert fired(rules, tmp_path, HEALTHY, []) == ""
    assert fired(rules, tmp_path, HEALTHY, ["TrainingSlow"]), "and this check would see one"
