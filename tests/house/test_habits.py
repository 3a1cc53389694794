"""What the project promises of its own tree."""

import ast
import re
import subprocess
import sys
import tomllib

import yaml

from pipeline import __version__
from tests.support import forked

LONGEST_FILE, LONGEST_FUNCTION = 600, 50  # lines


def sources(root):
    parts = ("pipeline", "model", "benchmarks", "deploy", "docker", "docs", "tests")
    return [path for part in parts for path in sorted((root / part).rglob("*.py"))]


def test_no_command_of_the_pipeline_loads_torch_before_it_has_read_its_config(root):
    names = [path.stem for path in sorted((root / "pipeline").glob("*.py"))]
    modules = ", ".join(f"pipeline.{name}" for name in names if name != "__init__")
    heavy = {"torch", "deepspeed", "transformers"}
    script = f"import sys, {modules}; print(*sorted({heavy} & sys.modules.keys()))"
    done = forked.fresh("-c", script, check=True)
    assert done.stdout.split() == []


def test_files_and_functions_are_short(root):
    long = []
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        if text.count("\n") > LONGEST_FILE:
            long.append(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name[:6] != "tests/":
                words = (ast.get_docstring(node, clean=False) or "").count("\n") + 1
                lines = (node.end_lineno or 0) - node.lineno + 1 - words
                if lines > LONGEST_FUNCTION:
                    long.append(f"{name}: {node.name} has {lines} lines")
    assert long == []


def test_make_help_explains_every_target(root):
    text = (root / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert targets
    shown = subprocess.run(  # another make may be running these tests: it would say where this is
        ["make", "--no-print-directory", "help"], cwd=root, capture_output=True, text=True, check=True
    )
    assert {line.split()[0] for line in shown.stdout.splitlines()} == set(targets[1].split())


def test_workflows_run_what_was_read_and_may_do_little(root):
    """A tag of an action can be moved to other code; a commit cannot."""
    for path in (root / ".github" / "workflows").iterdir():
        flow = yaml.safe_load(path.read_text())
        assert flow["permissions"] == {"contents": "read"}, path
        for name, job in flow["jobs"].items():
            more = {"packages": "write", "id-token": "write"} if name == "publish" else {}
            assert job.get("permissions", {"contents": "read"}) == {"contents": "read"} | more, path
            used = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used), path
    weekly = yaml.safe_load((root / ".github" / "workflows" / "ci.yml").read_text())
    assert weekly[True]["schedule"], "YAML 1.1 reads `on` as true"
    assert "make audit" in [step.get("run") for step in weekly["jobs"]["audit"]["steps"]]


def test_an_audit_looks_at_all_that_is_pinned(root):
    def pins(path):
        return set(re.findall(r"^([\w.-]+==[^+\s]+)", path.read_text(), re.M))

    shown = subprocess.check_output(["make", "--dry-run", "--always-make", "audit"], cwd=root, text=True)
    looked_at = [root / name for name in re.findall(r"[\w/-]+\.txt", shown.partition("pip-licenses")[2])]
    pinned = [root / "constraints.txt", *root.glob("docker/requirements-*.txt")]
    assert set().union(*map(pins, pinned)) == set().union(*map(pins, looked_at))


def test_commands_of_tests_have_the_usual_signals_whoever_started_the_tests(root, tmp_path):
    (tmp_path / "test_it.py").write_text("""import subprocess
def test_it():
    status = subprocess.check_output(["cat", "/proc/self/status"], text=True)
    assert not int(status.partition("SigIgn:")[2].split()[0], 16) & 0b11
""")
    words = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.conftest", str(tmp_path)]
    starts = ["sh", "-c", "trap '' INT; exec nohup \"$@\"", "sh", *words]
    subprocess.run(starts, cwd=root, capture_output=True, check=True)


def test_what_is_advised_to_install_is_there(root):
    """Our package is not on an index, where anybody could give its name to another one."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    ours = [path for path in sources(root) if "tests" not in path.relative_to(root).parts]
    extras = []
    for path in [*ours, *pages]:
        text = path.read_text(encoding="utf-8")
        assert f"pip install '{project['name']}" not in text, path
        extras += re.findall(r"'\.\[(\w+)\]'", text)
    assert set(extras) >= {"s3", "gcs", "azure", "onnx"}
    assert set(extras) <= project["optional-dependencies"].keys()


def test_one_version_and_licence_stand_everywhere(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    assert "Apache License" in (root / "LICENSE").read_text()
