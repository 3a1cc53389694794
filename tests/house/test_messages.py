"""Typical mistakes through the real command line, with the text that users see.

`golden/messages.txt` has each command with its output; `--golden` writes it again.
"""

import functools
import importlib
import os
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from model.config import TrainConfig
from pipeline.cli import entry_point
from pipeline.errors import Exit

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"

# One per line; TMP is the folder of `files`.
MISTAKES = """
prepare
prepare corpus=book
prepare corpus=books
prepare corpus=books text
prepare corpus=books corpus.path= TMP/books
prepare corpus=books corpus.path=TMP/gone vocab=TMP/vocab.txt out=TMP/out
prepare corpus=books corpus.path=TMP/books out=az://bucket/out
prepare corpus=books seqence_length=9
prepare +corpus=books +corpus=books
prepare corpus=books corpus.options=x
prepare corpus=jsonl corpus.files=[x]
prepare corpus=jsonl corpus.path=TMP/books corpus.subset=nld_Latn
prepare corpus=jsonl corpus.path=TMP/books vocab=TMP/vocab.txt out=TMP/out corpus.options.title=name
prepare corpus=books sequence_length=x
prepare corpus=books seed=1,2
prepare corpus=books 'filters.banned=[a b'
prepare corpus=books corpus.path=TMP/books workdir=TMP
prepare corpus=books corpus.path=TMP/books vocab=TMP/vocab.txt out=TMP/books/a.txt
prepare corpus=books corpus.path=TMP/books vocab=TMP/vocab.txt out=TMP/books/a.txt/out
prepare corpus=books corpus.path=TMP/books vocab=TMP/vocab.txt out=TMP/books
prepare --verbose corpus=books
prepare --from
prepare --from TMP/gone.yaml
prepare corpus=books corpus.path=TMP/books vocab=TMP/vocab.txt out=.
prepare corpus=books validation_share=null
prepare corpus=books filters.decontaminate=TMP/tone.tsv
prepare corpus=books corpus.path=
prepare corpus=books corpus.path=https://somewhere/a.txt vocab=TMP/vocab.txt out=TMP/out
prepare corpus=glue vocab=TMP/vocab.txt out=TMP/out
prepare corpus=mix vocab=TMP/vocab.txt out=TMP/out
prepare corpus=jsonl corpus.path=TMP/array.jsonl vocab=TMP/vocab.txt out=TMP/out
prepare corpus=jsonl corpus.path=TMP/int.jsonl vocab=TMP/vocab.txt out=TMP/out
prepare corpus=jsonl corpus.path=TMP/content.jsonl vocab=TMP/vocab.txt out=TMP/out
prepare corpus=jsonl corpus.path=TMP/int.jsonl corpus.options.foo=1 vocab=TMP/vocab.txt out=TMP/o
vocab existing=TMP/vocab.txt additions=TMP/more.txt out=TMP/out
download corpus=books out=TMP/out
run corpus=sample --force
run corpus=sample force=[nonsense] workdir=TMP/run
run corpus=sample tran.steps=9
run corpus=sample train.stesp=9 workdir=TMP/run
run corpus=sample train-512.steps=9 workdir=TMP/run
run corpus=sample prepare.runner=flink workdir=TMP/run
run corpus=sample prepare.runner=spark2 workdir=TMP/run
run corpus=sample train.optimizer.nonsense=2 workdir=TMP/run
run corpus=sample evaluate.seeds=2 workdir=TMP/run
run corpus=sample train.steps=1.5 workdir=TMP/run
run corpus=sample tracking=none
run corpus=sample recipe=devlin batch_size=9
run corpus=sample stages.train.steps=9
run corpus=sample ~tasks
run corpus=sample ~train
run corpus=sample +corpus=wiki
run corpus=sample --dry-run
run corpus=sample -m
run “corpus=sample”
run corpus=sample task=rte
run corpus=sample tasks=[rtee] workdir=TMP/run
run corpus=sample tasks=[rte] workdir=TMP/run
run corpus=sample tasks=[rte] glue=TMP/gone workdir=TMP/run
run corpus=sample workdir=TMP/vocab.txt
run corpus=sample @TMP/gone
run corpus=sample --config-dir TMP/gone
run corpus=sample executor=slurm workdir=TMP/run
run corpus=sample executor.preflight=true workdir=TMP/run
train data=FOLDER
train data.dir=[a]
train optimizer=null
train --cfg x
train --steps 9
train model=tny
train model=tiny model.heads=3 workdir=TMP
train optimizer.learning_rate=-1 workdir=TMP
train force=maybe
evaluate
evaluate task=own data=TMP
evaluate task=own data=TMP/tone.tsv pretrained=TMP out=TMP/out
report workdir=TMP out=TMP/report
submit workdir=TMP out=TMP/submit
inspect TMP/gone
inspect
dashboards TMP
"""


def ended(name, words):
    """Run a command in this process; return how it ends."""
    sys.argv = [name, *words]
    main = importlib.import_module(f"pipeline.{name}").main
    if name == "train":  # its main ends the process
        main = functools.partial(entry_point.run, name, TrainConfig, print)
    with pytest.raises(SystemExit) as found, patch.dict(os.environ):  # a run sets some
        main()
    return found.value


def message(line, folder, capsys):
    """Run a command in this process; return its errors, without long lists and temporary paths."""
    name, *words = shlex.split(line.replace("TMP", str(folder)))
    code = ended(name, words).code
    said = capsys.readouterr().err
    assert code == Exit.USER, f"{line}: {said}"
    errors = [text for text in said.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1, f"{line}: {said}"
    text = errors[0].replace(str(folder), "TMP")
    return re.sub(r"(one of:? [^,]+, [^,]+), .*", r"\1, …", text)


@pytest.mark.slow
def test_typical_mistakes_are_explained_as_agreed(files, request, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", sys.argv)  # restored afterwards
    monkeypatch.setenv("PATH", "")  # sbatch is not found
    lines = MISTAKES.strip().splitlines()
    text = "\n".join(f"$ {line}\n{message(line, files, capsys)}\n" for line in lines)
    if request.config.getoption("--golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
