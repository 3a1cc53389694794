"""The records that a run's driver makes once and everything else reads; see `pipeline.records.run_file`."""

import dataclasses
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.common import cores
from pipeline.common.schema import built, set_key
from pipeline.config import RunConfig, StageConfig
from pipeline.console.redact import hide, one_line, unsigned
from pipeline.errors import ConfigError, InputError, writable
from pipeline.records import run_file
from pipeline.records.manifest import Manifest
from pipeline.stages.fetch_inputs import in_store, local_place
from pipeline.stages.registry import STAGES
from pipeline.storage import places
from pipeline.storage.atomic import write_text
from pipeline.storage.checksums import sha256_of
from pipeline.storage.stores import objects

ROOT = Path(__file__).resolve().parents[2]
Texts = dict[str, str]  # by name, or by dotted key
FORCED = "forced"  # the reason for a rerun that the user asked for


def code() -> str:
    """Return what identifies this code: its release, and the version of each stage."""
    return f"{__version__}+{'.'.join(str(stage.version) for stage in STAGES.values())}"


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """One stage of a run."""

    name: str
    kind: str
    config: StageConfig
    needs: tuple[str, ...]  # names of the stages whose folders it reads
    fingerprint: str
    reason: str | None  # why it has to run; None: up to date
    done: int = 0  # steps of a training that are not repeated

    @property
    def out(self) -> places.File:
        """Return the output folder, also one in a store."""
        return places.at(places.normal(self.config.out))

    @property
    def job(self) -> str:
        """Return the name of the stage's Kubernetes or Slurm job; all evaluations share one."""
        return "evaluate" if self.kind == "evaluate" else self.name

    def made(self) -> Manifest | None:
        """Return the manifest of the folder if it is the one that this run requires."""
        manifest = Manifest.read(self.out)
        return manifest if manifest is not None and manifest.fingerprint == self.fingerprint else None

    def secrets(self, shown: Callable[[str], str] = hide) -> Texts:
        """Return the settings that hold secrets, by dotted key: those that `shown` changes."""
        texts = _texts(dataclasses.asdict(self.config))
        return {key: text for key, text in texts.items() if shown(text) != text}


StageRecords = list[StageRecord]
Groups = dict[str, StageRecords]  # the stages of each job that is to come, by its name


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: the command that makes it again, the code that planned it, and its stages in order."""

    workdir: str
    mirror: str | None
    recipe: str
    command: str
    here: bool = True  # its stages are processes of this machine
    cores: int  # of the driver, which a stage elsewhere replaces by its own
    environment: Texts  # variables of all stages, unless they are set
    stages: dict[str, StageRecord]
    code: str = field(default_factory=code)
    version: int = run_file.VERSION

    @property
    def place(self) -> str:
        """Return the path of the record on this machine."""
        return run_file.place_of(str(local_place(self.workdir, self.mirror)))

    def write(self) -> None:
        """Write the record for its owner alone, and into the store of the run, without secrets.

        What is hidden in it, processes of this machine get by their environment; other machines get
        none, so a value that only equals a secret of this one's environment stays for them.

        Raises:
            InputError: nothing can be written there.
        """
        plain, shown = dataclasses.asdict(self), hide if self.here else unsigned
        for name, record in self.stages.items():
            for key, text in record.secrets(shown).items():
                set_key(plain["stages"][name]["config"], key, shown(text))
        text = json.dumps(plain, indent=1) + "\n"
        folder = local_place(self.workdir, self.mirror)
        with writable(folder, "workdir"):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / run_file.NAME, text, mode=0o600)
        if in_store(self.workdir):
            objects.client(self.workdir).put(run_file.place_of(self.workdir), text.encode())

    def digest(self, job: str) -> str:
        """Return what tells the job of this run from one with other settings or inputs."""
        fingerprints = [record.fingerprint for record in self.stages.values() if record.job == job]
        return sha256_of("".join(fingerprints))[:16]

    def check_unsigned(self) -> None:
        """Raise ConfigError if a stage reads an address with a secret, which goes to no other machine."""
        if self.here:
            return
        for record in self.stages.values():
            for key in record.secrets(unsigned):
                raise ConfigError(
                    "holds a secret, which is not written for other machines; put credentials into the environment of "
                    "the jobs",
                    f"{record.name}.{key}",
                )


def record_run(config: RunConfig, nodes: Iterable[StageRecord], here: bool | None = None) -> Run:
    """Return the record of a planned run, with the command line that makes it again.

    `here` is not as configured within a job of Slurm, whose steps run its stages.

    Raises:
        ConfigError: a setting that goes to other machines holds a secret.
    """
    run = Run(
        workdir=config.workdir,
        mirror=config.mirror,
        recipe=config.recipe,
        here=config.executor.here if here is None else here,
        cores=config.cores or cores.available(),
        command=shlex.join(map(one_line, ["python", "-m", "pipeline.run", *sys.argv[1:]])),
        environment=names_for_wandb(config),
        stages={node.name: node for node in nodes},
    )
    run.check_unsigned()
    return run


def names_for_wandb(config: RunConfig) -> Texts:
    """Return the variables with the group and the tags of a run's stages.

    Tags are the recipe, the model's size, the corpus and the commit; the version without git.
    """
    tags = (config.recipe, config.model.get("name"), config.corpus.name, commit())
    listed = ",".join(str(tag) for tag in tags if tag)
    return {"WANDB_RUN_GROUP": Path(config.workdir).name, "WANDB_TAGS": listed}


def commit() -> str:
    """Return the commit of this checkout, or the version of an installed package."""
    if not (ROOT / ".git").exists():
        return __version__
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return done.stdout.strip()


def group_by_job(nodes: Iterable[StageRecord]) -> Groups:
    """Return the stages that have to run by the name of their job."""
    groups: Groups = {}
    for node in nodes:
        if node.reason is not None:
            groups.setdefault(node.job, []).append(node)
    return groups


def read(place: str) -> Run:
    """Read the record of a run.

    Raises:
        InputError: it cannot be read, or other code has written it.
    """
    plain = run_file.load(place)
    if plain.get("code") != code():
        raise InputError(
            f"written by code {plain.get('code')}, this is {code()}; use images of one build, and start the run again",
            path=place,
        )
    try:
        stages = {}
        for name, one in plain["stages"].items():
            config = built(STAGES[one["kind"]].schema, one["config"], name)
            stages[name] = StageRecord(**one | {"config": config, "needs": tuple(one["needs"])})
        return Run(**plain | {"stages": stages})
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"is not the record of a run ({error}); start the run again", path=place) from error


def _texts(value: Any, key: str = "") -> Texts:
    """Return the texts in nested dicts and lists, by dotted key."""
    if isinstance(value, str):
        return {key: value}
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return {inner: text for name, item in items for inner, text in _texts(item, f"{key}.{name}".lstrip(".")).items()}
