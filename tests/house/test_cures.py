"""What a message tells its reader to type is typed in its situation, and helps.

Helps: the message is gone, and the next one, if any, is not of what was typed. `UNTYPED` has the messages that name
nothing to type, with the reason.
"""

import ast
import re
import shlex

import pytest

from pipeline.cli.conf_files import choices
from pipeline.cli.overrides import type_of
from pipeline.config import EmbedConfig, PredictConfig, RunConfig
from pipeline.console import terminal
from pipeline.errors import read_errors, rendered
from pipeline.stages.registry import KNOWN, STAGES
from tests.house.test_messages import GOLDEN, MISTAKES, ended

OF_HELP = {"NAME": "{first}", "FOLDER": "{folder}", "PATH": "{folder}/books", "VALUE": "9", "FILE": "{folder}/more.txt"}
TYPED_AS = r"[\w.+@-]+(?:\[\d+\])?=(?:\[[^\]]*\]|[^\s;,?)']+)"
CURE = re.compile(
    r"(?:did you mean|type|write(?: a list as)?|add|set|or|as in|such as|marks,) "
    rf"(?:'(?P<quoted>[^']+=[^']+)'|(?P<cure>--force \w+|{TYPED_AS}(?: {TYPED_AS})*))"
    r"|did you mean (?P<word>[\w.-]+)|(?<!\? )choose one of (?P<first>\w+)|set another (?P<other>\w+)"
    r"|run python -m pipeline\.(?P<run>\w+)|leave (?P<out>one of them|it) out"
    r"|(?:pipeline\.(?P<module>\w+) )?(?P<help>--help) lists"
)
MORE = """
prepare corpus.path=TMP/books
prepare corpus=books corpus.path=TMP/my books
run corpus.path=TMP/books
evaluate task.columns=[text]
evaluate +task=own seeds=3
evaluate +task=own task.columns=text
evaluate +task=own task.metrics=[pearson]
evaluate +task=own task.labels=[] task.metrics=[accuracy]
train save_at_words=9
train learning_rate=1e-4
train optimizer.lr=1e-4
train --learning_rate=1e-4
train +gradient_accumulation_steps=4
train schedule.warmup_ratio=0.1
evaluate +task=own warmup_ratio=0.1
run corpus=sample vocab_size=900
run corpus=sample hidden_size=64
train output_dir=out
train objective.mask_share=[0.3 0.2]
run corpus=sample learning_rate=1e-4
run corpus=sample train.output_dir=out
evaluate +task=sample_next pretrained=TMP data=TMP encoder=frozen keep=true
run corpus=sample evaluate.seeds=3
evaluate +task=sample_next pretrained=TMP data=TMP submit=true
run corpus=sample train.optimizer.betas=[0.9 0.95]
train deepspeed.zero_optimization=2
train precision=bf16 deepspeed=zero0
report runs=[TMP] stages=[TMP]
report runs=[TMP] workdir=TMP out=TMP/report
report runs=[TMP] out=TMP/x tracking=wandb
"""
UNTYPED = {  # what names nothing to type here: parts of the messages, by what they ask for
    "a place that only the reader knows": (
        "no such file or folder; scheme not supported; cannot be read; does not exist; not a folder; must be in s3://"
    ),
    "a value that only the reader knows": (
        "must be a whole number; must be one value; must not be null; must be one text; must not be empty; "
        "must divide; must be above 0; must be true or false; give the command once"
    ),
    "the reader's choice": "set one of these; no such option of; no such stage in the recipe",
    "the content of a file": "holds an int; is a JSON array; can never match",
    "a finished run": "a stage is required, as in RUN; no finished stages; finished prepare; no answers to GLUE",
    "another command or machine": "skip download; only works with python; sbatch not found; curly; choice: 'x'",
}
PARTS = [part for parts in UNTYPED.values() for part in parts.split("; ")]


def error_of(name, words, capsys):
    """What a command is answered with; a run starts no stage, as these are another scheduler's."""
    none = name == "run" and not any(word.startswith("executor") for word in words)
    ended(name, ["executor=none", *words] if none else words)
    return next(iter(read_errors(capsys.readouterr().err)), None)


def typed(words, error, cure):
    """The command with its cure instead of what was wrong."""
    wrong = {error.key, (error.path or "").partition("=")[0].lstrip("-+~"), str(error).partition(":")[0]}
    wrong |= {re.split(r"[=[]", each)[0].lstrip("-+~") for each in wrong if each}
    kept, value = [], "9"
    for word in words:
        key, equals, rest = word.partition("=")
        if key.lstrip("-+~") in wrong or (len(word) > 1 and word in cure) or word == "=":
            value = rest if equals else value
        else:
            kept.append(word)
    several = cure.split() if cure.startswith("--") else re.split(r" (?=[\w.]+=)", cure)
    return [*kept, *several] if cure.startswith("--") or "=" in cure else [*kept, f"{cure}={value}"]


def lines_typed(name, words, error, found, folder):
    """The commands that a part of a message has its reader type."""
    if found["help"]:
        return [(found["module"] or name, [*words, "--help"])]
    if found["run"]:
        return [(found["run"], words), (name, words)]
    if found["out"]:
        last = max(at for at, word in enumerate(words) if word.lstrip("+").startswith(f"{error.key}="))
        return [(name, words[:last] + words[last + 1 :])]
    cure = found["cure"] or found["quoted"] or found["word"] or found["first"] or f"{found['other']}={folder}/other"
    if found["first"] or (error.problem.startswith("no such") and "=" not in cure and error.value):  # another choice
        in_list = any(word.startswith(f"{error.key}=[") for word in words)
        cure = f"{error.key}=[{cure}]" if in_list else f"{error.key}={cure}"
    first = re.search(r"one of:? (?:ax\b.*\b(?=own,))?([\w-]+)", str(error))
    for place, meant in OF_HELP.items():
        cure = re.sub(rf"\b{place}\b", meant.format(first=first and first[1], folder=folder), cure)
    return [(name, typed(words, error, "tasks=[]" if cure == "tasks=9" else cure))]


@pytest.mark.parametrize("line", [line for line in f"{MISTAKES}{MORE}".splitlines() if line])
def test_a_cure_helps_when_it_is_typed(line, files, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [])  # restored afterwards
    monkeypatch.setenv("PATH", "")  # sbatch is not found
    monkeypatch.setenv(terminal.RECORDS, "1")
    monkeypatch.chdir(files / "books")
    name, *words = shlex.split(line.replace("TMP", str(files)))
    error = error_of(name, words, capsys)
    assert error is not None, "no mistake"
    untyped = any(part in str(error) for part in PARTS)
    cures = [] if untyped else list(CURE.finditer(rendered(error.problem)))
    assert cures or untyped, f"names nothing to type: {error}"
    for found in cures:
        for command, given in lines_typed(name, words, error, found, files):
            again = error_of(command, given, capsys)
        assert again is None or str(again) != str(error), f"{given} changes nothing"
        keys = [word.lstrip("+").partition("=")[0] for word in given if word not in words]
        assert again is None or again.key not in keys, f"{given}: {again}"


def test_what_names_nothing_to_type_is_still_said():
    assert [part for part in PARTS if part not in GOLDEN.read_text()] == ["set one of these"]  # one of MORE


ADVICE = re.compile(r"\b(set|type|add|use|leave|run|rerun|lower|raise|with|write|by)\b")
TYPED = re.compile(r"(?:^|[\s('`\"])\+{0,2}([a-z][\w.]*)=([\w.]*)|python -m ((?:pipeline|model)[.\w]*\w)")
OF_OTHERS = ("slots", "type", "reference_type")  # a hostfile's, Kubernetes', OmegaConf's


def messages(root):
    """Every text of the code that advises something; what is computed is in braces."""
    for path in (*(root / "pipeline").rglob("*.py"), *(root / "model").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node)[2:] if isinstance(node, ast.JoinedStr) else getattr(node, "value", None)
            if isinstance(text, str) and ADVICE.search(text) and not re.match("[A-Z<]", text):  # docstrings, SVG
                yield re.sub(r"\{named\(['\"]([\w.]+)['\"]\)\}", r"\1", text)


def test_keys_and_commands_of_every_message_exist(root):
    schemas = [*(stage.schema for stage in KNOWN.values()), PredictConfig, EmbedConfig, RunConfig]
    found = {each for text in messages(root) for each in TYPED.findall(text)}
    for key, value, module in found:
        stage, _, rest = key.partition(".")
        known = [*schemas, STAGES[stage].schema] if stage in STAGES else schemas
        there = any(type_of(one, name) is not None for one in known for name in (key, rest)) or key in OF_OTHERS
        place = root / module.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").exists() if module else there, (key, module)
        assert not (value.islower() and choices(key)) or value in choices(key), f"{key}={value}"
    assert len(found) > 100
