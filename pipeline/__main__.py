"""`python -m pipeline`: the commands, one a line."""

import sys
import textwrap

from pipeline import inspect
from pipeline.cli import conf_files
from pipeline.common import screen
from pipeline.stages.registry import STAGES


def commands() -> dict[str, str]:
    """What every command does, by its module or script, in the order of the work."""
    chain = ["run", *STAGES]
    others = [path.stem for path in sorted(conf_files.CONF.glob("*.yaml")) if path.stem != "hydra"]
    told = [
        conf_files.first_comment(conf_files.CONF / f"{name}.yaml").partition(". ")[0]
        for name in dict.fromkeys([*chain, *others])
    ]
    assert inspect.__doc__ is not None
    told.append(inspect.__doc__.partition("\n")[0].replace("`", ""))
    heads = (sentence.rstrip(".").partition(": ") for sentence in told)
    return {
        " ".join(call.split()[: 2 + call.startswith("python")]): what for call, _, what in heads
    }


def main() -> None:
    """The command."""
    columns = screen.width(sys.stdout)
    for call, what in commands().items():
        if columns is None:
            what = textwrap.shorten(what, 70, placeholder=" …")
        print(screen.wrap(f"{call:<29}{what}", columns, indent=29))
    print("\n--help after any of them says what it takes.")


if __name__ == "__main__":
    main()
