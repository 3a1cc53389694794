"""The files that a release writes, for ever readable: `python -m tests.releases.archive VERSION`.

Runs all stages with tiny sizes, a BERT on pairs and a ModernBERT on packed sequences, and writes
`VERSION.tar.xz`, with the commands and what is read from it in `VERSION.json`. What differs each
time is set to a constant, so that the same code and libraries write the same bytes. A release's two
files are never written again.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from model.huggingface import bert_format, logits
from model.tracking.metrics_file import read_metrics
from model.training.checkpoint import Tensors
from pipeline.cli import composing
from pipeline.console.formatting import flatten
from pipeline.orchestration import graph, run_plan
from pipeline.records import checkpoint_folder, run_file
from pipeline.records.manifest import MANIFEST, Manifest
from pipeline.records.metrics import Score
from pipeline.shards import SPLITS, open_folder
from pipeline.stages import fingerprints
from pipeline.stages.registry import STAGES
from pipeline.storage.checksums import sha256
from pipeline.tokenization.wordpiece import WordPiece
from tests.pipeline.test_run import write_books
from tests.support import forked
from tests.support.crash_points import TIMES
from tests.support.runs import composed

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("SHARED_DATA", forked.ROOT.parent / "shared" / "data")).parent / "runs"
MOMENT, DATE = 1_767_225_600, '"2026-01-01T00:00:00+00:00"'  # the same one, in seconds
TEXT = "The river and the old harbour were near the market on day 7 of year 1984."
SMALL = (
    "+corpus=books corpus.path=books tasks=[sample_next] cores=2 vocab.size=150 prepare.sequence_length=32 "
    "prepare.validation_share=0.3 tasks.validation_share=0.3 tasks.train_rows=20 tasks.dev_rows=10 "
    "train.model.layers=2 train.model.hidden=8 train.model.feed_forward=16 train.model.heads=2 "
    "train.model.positions=32 train.steps=6 train.save_every=3 train.keep=2 train.evaluate_every=3 train.log_every=1 "
    "train.batch_size=8 train.micro_batch=8 train.processes=1 train.tracking=none report.tracking=none "
    "evaluate.epochs=1 evaluate.sequence_length=32"
)
COMMANDS = {
    name: f"python -m pipeline.run workdir={name} recipe={recipe} {SMALL}"
    for name, recipe in {"bert": "laptop", "modern": "modern-laptop"}.items()
}


def path_of(version):
    """The archive of a release, or one of earlier code in the development data folder."""
    own = HERE / f"{version}.tar.xz"
    return own if own.exists() else SHARED / own.name


def write(version):
    """Run the commands, and write the archive and the values that are read from it."""
    archive = HERE / f"{version}.tar.xz"
    assert not archive.exists(), f"{archive} is there; what was released is never written again"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        top = Path(folder)
        write_books(top / "books", 6)
        for path in (top / "books").iterdir():
            os.utime(path, (MOMENT, MOMENT))  # a part of fingerprints
        for name, command in COMMANDS.items():
            run(top, command)
            settle(top / name)
            shutil.rmtree(top / name / "report")  # it shows the times of the others
            run(top, command)
            settle(top / name)
        pack(top, archive)
        found = {"commands": COMMANDS, "values": {name: values(command) for name, command in COMMANDS.items()}}
    text = re.sub(r"\n(?: {4,}| {3}(?=\]))", " ", json.dumps(found, indent=1))  # a list is a line
    archive.with_name(f"{version}.json").write_text(text + "\n")


def run(top, command):
    """Run a command as it is."""
    done = forked.run([sys.executable, *shlex.split(command)[1:]], cwd=top, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr


def settle(work):
    """Remove what is no result, and set all times in files to one moment."""
    shutil.rmtree(work / "logs")
    for path in [*work.glob(".*"), work / "rates.json"]:
        path.unlink(missing_ok=True)
    record = work / run_file.NAME
    record.write_text(record.read_text().replace(run_plan.commit(), "0" * 10))
    for path in [*work.rglob("*.json"), *work.rglob("*.jsonl")]:
        path.write_bytes(TIMES.sub(one_moment, path.read_bytes()))
    for path in work.rglob(checkpoint_folder.SUMS):
        path.write_text("".join(f"{sha256(path.with_name(name))}  {name}\n" for name in checkpoint_folder.FILES))
    for path in work.rglob(MANIFEST):
        made = json.loads(path.read_text())
        for name in made["files"]:
            file = path.parent / name
            made["files"][name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
        path.write_text(json.dumps(made, indent=1) + "\n")


def one_moment(found):
    """The same key with a constant value of its kind."""
    kinds = {b'"': DATE.encode(), b"{": b"{}"}
    return b'"%b": %b' % (found[1], kinds.get(found[2][:1], b"1.0"))


def pack(top, archive):
    """Write a tar file whose bytes are a function of the files' content."""

    def plain(file):
        file.mtime, file.mode = MOMENT, 0o755 if file.isdir() else 0o644
        file.uid = file.gid = 0
        file.uname = file.gname = ""
        return file

    with tarfile.open(archive, "w:xz", preset=9) as file:
        for path in sorted(top.iterdir()):
            file.add(path, path.name, filter=plain)  # sorted below, too


def unpack(version, top):
    """Unpack an archive into a folder; return its commands and values."""
    with tarfile.open(path_of(version)) as file:
        file.extractall(top, filter="data")  # times are part of fingerprints
    return json.loads((HERE / f"{version}.json").read_text())


def planned(command):
    """The stages of a run's command line in this folder, as the present code composes them."""
    return graph.plan_graph(composed(*shlex.split(command)[3:]))


def values(command):
    """What the present code reads from the result of a command line in this folder."""
    module, *words = shlex.split(command)[2:]
    if module != "pipeline.run":
        kind = module.removeprefix("pipeline.")
        config = composing.compose_config(kind, STAGES[kind].schema, words, asked=False)
        return {"stands": graph.stage_status(kind, config, {}, [])[1]}
    found = {node.name: values_of(node) for node in planned(command)}
    return dict(flatten(json.loads(json.dumps(found, default=str))))


def values_of(node):
    """What is read from the folder of a stage."""
    made = Manifest.read(node.out)
    record = Path(node.config.out).parent / run_file.NAME
    # The oldest archive has no record of its run.
    config = run_file.config_of(f"{record}#{node.name}", type(node.config), []) if record.exists() else node.config
    changed = fingerprints.changed_settings(config)
    found = {"stands": node.reason or "cached", "fingerprint": made.fingerprint, "settings": changed}
    found["summary"] = made.summary
    read = {"vocab": vocabulary, "prepare": shards, "train": training, "convert": model, "evaluate": score}
    return found | read.get(node.kind, lambda folder: {})(Path(node.config.out))


def vocabulary(folder):
    """The ids of a text."""
    wordpiece = WordPiece.load(folder)
    return {"sha256": wordpiece.sha256, "size": wordpiece.size, "ids": wordpiece.encode([TEXT])[0].tolist()}


def shards(folder):
    """Of each split: rows, tokens, and a row with its segments."""
    found = {}
    for split in SPLITS:
        opened = open_folder(folder, split)
        first, row = opened[0], opened[0].rows // 2
        found[split] = {
            "rows": sum(shard.rows for shard in opened),
            "tokens": sum(shard.tokens for shard in opened),
            "random_next": int(sum(shard.is_random_next.sum() for shard in opened)),
            "ids": first.ids(*first.offsets[row : row + 2]).tolist(),
            "a_len": int(first.a_len[row]),
            "info": first.info.as_json(),
        }
    return found


def checksum(tensors):
    """Of names and values."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def training(folder):
    """The state, weights and moments of the last checkpoint, and the losses on the way."""
    path, state = checkpoint_folder.locate(folder)
    file = Tensors(path)
    names = sorted({name for _, name in file.moments})
    losses = [row["loss"] for row in read_metrics(folder) if row["kind"] == "train"]
    return {
        "step": state.step,
        "samples": state.samples,
        "tokens": state.tokens,
        "model": state.model,
        "weights": checksum((name, file.weight(name)) for name in names),
        "moments": checksum((f"{key}.{name}", file.moment(key, name)) for key, name in sorted(file.moments)),
        "losses": losses,
    }


def model(folder):
    """Some logits of random sequences, and how far those of transformers are from ours."""
    config, state, notes, _ = bert_format.load(folder)
    found = logits.ours(config, state, logits.random_batch(config, folder))
    far = logits.compare(folder, config, state)
    return {"logits": [kind.flatten()[:5].tolist() for kind in found], "notes": notes, "agrees": bool(far < 1e-6)}


def score(folder):
    """The score and its baselines, from the manifest and from the file of results."""
    made = Manifest.read(folder)
    of = Score.of(made)
    found = {"metric": of.metric, "score": of.score, "baseline": of.baseline, "majority": of.majority}
    rows = [line.split("\t") for line in (folder / "predictions.tsv").read_text().splitlines()[:3]]
    return {"figures": found, "predictions": ["\t".join(row[:2]) for row in rows]}


if __name__ == "__main__":
    write(*sys.argv[1:])
