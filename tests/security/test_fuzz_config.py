"""No command line and no YAML file does more than set keys, or gets an error of one line."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hypothesis import strategies as st

from pipeline.cli import composing, conf_files
from pipeline.config import RunConfig
from pipeline.stages.registry import STAGES
from tests.security.hostile import hammer, soup
from tests.support import forked

pytestmark = pytest.mark.fuzz

SCHEMAS = {name: stage.schema for name, stage in STAGES.items()}
COMMANDS = {**SCHEMAS, "run": RunConfig}
PLAIN_VALUES = (
    "null true -1 0 1 1e999 nan inf [] [1,2] {} {a:1} '' ??? a ${x} ${oc.env:HOME} ${ 1.5 "
    "99999999999999999999 [[ ' é a=b ${workdir} ../.. * # , ~ + @"
)
VALUES = [*PLAIN_VALUES.split(), "\\", " "]


@pytest.fixture(scope="module")
def keys():
    """The keys of each command and of its groups."""
    for name, schema in COMMANDS.items():
        composing.register(name, schema)
    GlobalHydra.instance().clear()
    found = {}
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        for name in COMMANDS:
            composed = compose(name)
            groups = [str(key) for key in composed if conf_files.choices(str(key))]
            found[name] = [str(key) for key in composed] + groups
            for group in groups:
                found[name] += [f"+{group}={choice}" for choice in conf_files.choices(group)]
            for key in composed:
                node = composed._get_node(key)
                if hasattr(node, "keys") and not node._is_missing() and not node._is_none():
                    found[name] += [f"{key}.{inner}" for inner in node]
    return found


def test_any_overrides_compose_or_are_explained(keys):
    def check(data):
        command = data.draw(st.sampled_from(sorted(COMMANDS)))
        key = st.one_of(st.sampled_from(keys[command]), st.text(max_size=6))
        value = st.one_of(st.sampled_from(VALUES), soup(VALUES, 4))
        word = st.tuples(st.sampled_from(["", "", "+", "++", "~"]), key, value)
        overrides = data.draw(st.lists(word, max_size=4))
        words = [f"{sign}{key}={value}" for sign, key, value in overrides]
        try:
            with composing.convert_hydra_errors():
                composed = compose(command, words)
            composing.validate(composed, COMMANDS[command])
        except composing.MISTAKES as error:
            told = str(composing.explain(error))
            assert told.strip()
            assert "\n" not in told

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        hammer(check, st.data(), examples=60)


PLAIN_PIECES = "*x { } [ ] defaults: | > ' --- 1e999 ${x}"
SPACED = 'a: |- |\n|  |&x |<<: |? |"|_target_: os.system|# @package _|\t|%YAML 1.1|!!binary |path: |name: x|reader: '
PIECES = [*PLAIN_PIECES.split(), *SPACED.split("|"), "!!python/object/apply:os.system ['touch owned']"]


def test_any_yaml_is_a_config_or_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()

    def check(text):
        (tmp_path / "corpus" / "mine.yaml").write_text(text, encoding="utf-8", errors="replace")
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
                words = ["+corpus=mine", f"hydra.searchpath=[{tmp_path}]"]
                with composing.convert_hydra_errors():
                    composed = compose("vocab", words)
                composing.validate(composed, SCHEMAS["vocab"])
        except composing.MISTAKES as error:
            assert str(composing.explain(error)).strip()  # noqa: PT017
        assert [path.name for path in tmp_path.iterdir()] == ["corpus"]

    composing.register("vocab", SCHEMAS["vocab"])
    hammer(check, soup(PIECES, 12), examples=40)


def test_yaml_that_would_run_code_is_one_line_of_error(root, tmp_path):
    (tmp_path / "corpus").mkdir()
    mine = "name: mine\nreader: !!python/object/apply:os.system ['touch owned']\n"
    (tmp_path / "corpus" / "mine.yaml").write_text(mine)
    done = forked.module("pipeline.vocab", "--config-dir", tmp_path, "+corpus=mine")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (root / "owned").exists()
