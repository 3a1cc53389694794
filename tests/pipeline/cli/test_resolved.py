"""A run hands a stage its configuration as a file, and nothing is lost or changed on the way."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cli import entry_point, resolved
from pipeline.common.errors import InputError
from pipeline.config import CorpusConfig, FiltersConfig, PrepareConfig, RunnerConfig
from tests import forked
from tests.examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["${oc.env:HOME}", r"\${x}", "a${b", r"\\${x}", "\\\\", "null", "1e4", "yes", "'", '"', "[a, b]", "# no", "é\n"]
)


def config(**changes: object) -> PrepareConfig:
    values: dict[str, object] = {
        "corpus": CorpusConfig(name="c", reader="text"),
        "runner": RunnerConfig(),
        "source": "s",
        "vocab": "v",
        "out": "o",
    }
    return PrepareConfig(**(values | changes))  # type: ignore[arg-type]


@settings(max_examples=examples(60), deadline=None)
@given(TEXT, st.lists(TEXT, max_size=3), st.dictionaries(TEXT, TEXT | st.integers(), max_size=3))
def test_any_value_comes_back(
    tmp_path_factory: pytest.TempPathFactory, text: str, banned: list[str], options: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("resolved") / "prepare.yaml"
    before = config(
        out=f"o{text}",
        filters=FiltersConfig(banned=banned),
        corpus=CorpusConfig(name="c", reader="text", path=f"p{text}", options=options),
    )
    resolved.write(path, before)
    after = entry_point.validate(resolved.read(path, PrepareConfig, []), PrepareConfig)
    assert after == before


def test_the_command_line_changes_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "prepare.yaml"
    resolved.write(path, config())
    read = resolved.read(path, PrepareConfig, ["seed=3", "corpus.language=vi"])
    changed = entry_point.validate(read, PrepareConfig)
    assert changed == config(seed=3, corpus=CorpusConfig(name="c", reader="text", language="vi"))


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    resolved.write(tmp_path / "prepare.yaml", config())
    assert (tmp_path / "prepare.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"a: [", b"\xff", b"sed: 1", b"seed: x"])
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prepare.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        resolved.read(path, PrepareConfig, [])
    assert caught.value.path == str(path)


def test_a_stage_runs_from_a_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some text.")
    corpus = CorpusConfig(name="c", reader="text", path=f"{tmp_path}/a.txt")
    made = config(vocab=f"{tmp_path}/none", corpus=corpus, out=f"{tmp_path}/out")
    resolved.write(tmp_path / "prepare.yaml", made)
    words = [sys.executable, "-m", "pipeline.prepare", "--from", f"{tmp_path}/prepare.yaml"]
    done = forked.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path}/none" in line
    shown = forked.run([*words, "--help"], cwd=root, capture_output=True, text=True, check=True)
    assert f"vocab={tmp_path}/none" in shown.stdout
