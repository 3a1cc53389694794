"""Command lines of deepspeed and torchrun: parsing and added options."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.common.ports import free_port
from pipeline.errors import ConfigError

HOSTFILE = Path("/job/hostfile")  # deepspeed's default
FLAGS = ("--no_ssh", "--no_ssh_check", "--no_python", "--no_local_rank", "--module", "--force_multi")


@dataclass(frozen=True)
class LauncherCommand:
    """A launcher's name, its options, and the script with its arguments."""

    launcher: str
    options: list[str]
    script: list[str]

    @staticmethod
    def parse(words: list[str]) -> "LauncherCommand":
        """Parse a command line; other programs have only a `script`."""
        if Path(words[0]).name not in ("deepspeed", "torchrun"):
            return LauncherCommand(words[0], [], words[1:])
        indices = (n for n, word in enumerate(words) if word.endswith(".py"))
        script = next(indices, len(words))
        return LauncherCommand(words[0], words[1:script], words[script:])

    @property
    def name(self) -> str:
        """Return the launcher's name without its folder."""
        return Path(self.launcher).name

    def argv(self) -> list[str]:
        """Return the command line."""
        return [self.launcher, *self.options, *self.script]

    def option(self, *names: str) -> str | None:
        """Return the value of an option, given any of its names, with dashes or underscores."""
        keys = {name.replace("-", "_") for name in names}
        for index, word in enumerate(self.options):
            key, equals, value = word.partition("=")
            if key.replace("-", "_") in keys:
                return value if equals else "".join(self.options[index + 1 : index + 2])
        return None

    def without(self, *names: str) -> "LauncherCommand":
        """Return the command without some options and their values."""
        keys = {name.replace("-", "_") for name in names}
        options: list[str] = []
        skip = False
        for word in self.options:
            if skip:
                skip = False
            elif word.partition("=")[0].replace("-", "_") in keys:
                skip = "=" not in word and word not in FLAGS
            else:
                options.append(word)
        return LauncherCommand(self.launcher, options, self.script)

    def adding(self, *words: str) -> "LauncherCommand":
        """Return the command with options prepended."""
        return LauncherCommand(self.launcher, [*words, *self.options], self.script)

    def setting(self, key: str) -> str | None:
        """Return the value of a key in the script's arguments."""
        values = [word.partition("=")[2] for word in self.script if word.startswith(f"{key}=")]
        return values[-1] if values else None

    @property
    def resuming(self) -> str:
        """Return how to resume; forced once more, a training would start over."""
        return f"run {'the command without force' if self.setting('force') else 'the same command'} to resume"

    def number(self, key: str, default: float) -> float:
        """Return the value of a key in the script's arguments as a number.

        Raises:
            ConfigError: it is none.
        """
        value = self.setting(key)
        try:
            return default if value is None else float(value)
        except ValueError as error:
            raise ConfigError("must be a number", key, value) from error

    def hostfile(self) -> Path | None:
        """Return the hostfile that deepspeed would read."""
        if self.name != "deepspeed":
            return None
        named = self.option("--hostfile", "-H")
        if named is not None:
            return Path(named)
        return HOSTFILE if HOSTFILE.is_file() else None

    def quiet(self) -> "LauncherCommand":
        """Return the command without DeepSpeed's log, unless its level is chosen.

        It repeats the command line and the exit code, around the one line of an error.
        """
        chosen = {"-q", "--quiet"} & set(self.options) or self.option("--log_level")
        if self.name != "deepspeed" or chosen:
            return self
        return self.adding("--log_level", "critical")

    def is_alone(self) -> bool:
        """Return whether all ranks are on this machine."""
        alone = {"deepspeed": self.hostfile() is None, "torchrun": self.option("--nnodes") in (None, "1")}
        return alone.get(self.name, False)

    def with_free_port(self) -> "LauncherCommand":
        """Return the command with a free port, if it runs on one machine and sets none."""
        if self.option("--master_port", "--rdzv_endpoint", "--standalone") is not None or not self.is_alone():
            return self
        return self.adding("--master_port", str(free_port()))


def read_hosts(path: Path) -> dict[str, int]:
    """Read a hostfile: the name of each host and its number of ranks.

    Raises:
        ConfigError: It is unreadable or empty, a line is not `NAME slots=N`, or a host is repeated.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read ({error})", "hostfile", path) from error
    hosts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *rest = words
        slots = rest[0].removeprefix("slots=") if len(rest) == 1 else ""
        # ssh would take a name that begins with a dash for an option, which may run a program.
        if not slots.isdecimal() or not int(slots) or name in hosts or name.startswith("-"):
            raise ConfigError(
                f"line {number}: must be NAME slots=GPUS, with each host once", "hostfile", path, line=number
            )
        hosts[name] = int(slots)
    if not hosts:
        raise ConfigError("must list at least one host", "hostfile", path)
    return hosts


def rank_hosts(hosts: dict[str, int]) -> str:
    """Return the host of each rank, in rank order, for the environment."""
    return ",".join(name for name, slots in hosts.items() for _ in range(slots))
