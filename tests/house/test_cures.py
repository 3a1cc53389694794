"""What a message tells its reader to type is typed in its situation, and helps.

Helps: the message is gone, and the next one, if any, is not of what was typed. Commands are composed and checked,
not run; `UNTRIED` has the messages of `test_messages` whose cure needs more than that, with the reason.
"""

import ast
import re
import shlex

import pytest

from pipeline.cli import composing
from pipeline.cli.conf_files import choices
from pipeline.cli.overrides import type_of
from pipeline.config import EmbedConfig, PredictConfig, RunConfig
from pipeline.errors import UserError
from pipeline.orchestration import compose_run, graph
from pipeline.stages.registry import OTHERS, STAGES
from tests.house.test_messages import MISTAKES

OF_HELP = {"NAME": "{first}", "FOLDER": "{folder}", "VALUE": "9", "KEY=VALUE": "seed=9", "FILE": "{folder}/vocab.txt"}
CURE = re.compile(
    r"(?:did you mean|type|write(?: a list as)?|add|set|as in) (?P<quote>'?)"
    r"(?P<cure>--force \w+|[\w.+-]+(?:\[\d+\])?(?:=(?:\[[^\]]*\]|[^\s;,?)']+))?)(?P=quote)[?,;) ]?"
)
MORE = """
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
report runs=[TMP,TMP] stages=[TMP]
report runs=[TMP] workdir=TMP out=TMP/report
report runs=[TMP] out=TMP/x tracking=wandb
"""
FOLDER, READER = "asks for another folder", "which one is the reader's choice"
UNTRIED = {  # what begins so, and why it is not typed here
    "is required; add +corpus=NAME": "any corpus needs a path",
    **dict.fromkeys(("is a file and is not overwritten", "cannot be replaced; set out", "is not writable"), FOLDER),
    "is in the folder that this command writes": FOLDER,
    "field text not found": "the reader's; tests/pipeline/cli/test_mistakes.py types cures of reading",
    "no finished stages found": "asks for a finished run",
    "if it belongs to the value before": "one of two readings",
    "has curly quotation marks": "the shell's marks, before any word is read",
    "set one of these": READER,
    "must be a folder; set data=": "evaluation reads the files",
}


def error_of(name, words):
    """What a command is answered with before it works; of a run also what its plan says."""
    try:
        if name == "run":
            made = compose_run.parse_run_argv("run", RunConfig, words, asked=False)
            graph.plan_graph(made)
        else:
            composing.compose_config(name, STAGES[name].schema, words, asked=False)
    except UserError as error:
        return error
    return None


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
    return [*kept, *(cure.split() if cure.startswith("--") else [cure if "=" in cure else f"{cure}={value}"])]


@pytest.mark.parametrize("line", [line for line in f"{MISTAKES}{MORE}".splitlines() if line])
def test_a_cure_helps_when_it_is_typed(line, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwords\n")
    name, *words = shlex.split(line.replace("TMP", str(tmp_path)))
    error = error_of(name, words) if name == "run" or name in STAGES else None
    if error is None or any(why in error.problem for why in UNTRIED):
        return
    found = CURE.search(str(error))
    assert found or not re.search(r"did you mean|\b(type|write|add|set) ", error.problem), f"not typed: {error}"
    if found is None:
        return
    cure = found["cure"]
    if error.problem.startswith("no such") and "=" not in cure and error.value:  # another choice
        cure = f"{error.key}={cure}" if error.key != "tasks" else f"tasks=[{cure}]"
    first = re.search(r"one of:? (?:ax\b.*\b(?=own,))?([\w-]+)", str(error))
    for place, meant in OF_HELP.items():
        cure = re.sub(rf"\b{place}\b", meant.format(first=first and first[1], folder=tmp_path), cure)
    cure = "tasks=[]" if cure == "tasks=9" else cure
    again = error_of(name, typed(words, error, cure))
    assert again is None or str(again) != str(error), f"{cure} changes nothing"
    assert again is None or again.key != cure.lstrip("+").partition("=")[0], f"{cure}: {again}"


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
    schemas = [*(stage.schema for stage in (STAGES | OTHERS).values()), PredictConfig, EmbedConfig, RunConfig]
    found = {each for text in messages(root) for each in TYPED.findall(text)}
    for key, value, module in found:
        stage, _, rest = key.partition(".")
        known = [*schemas, STAGES[stage].schema] if stage in STAGES else schemas
        there = any(type_of(one, name) is not None for one in known for name in (key, rest)) or key in OF_OTHERS
        place = root / module.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").exists() if module else there, (key, module)
        assert not (value.islower() and choices(key)) or value in choices(key), f"{key}={value}"
    assert len(found) > 100
