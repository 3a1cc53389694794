"""`python -m pipeline`: the list of commands."""

import sys
import textwrap

from pipeline import dashboards, inspect
from pipeline.cli import conf_files
from pipeline.console import terminal
from pipeline.stages.registry import STAGES


def commands() -> dict[str, str]:
    """Return a description of every command, by its module or script, in the order of use."""
    chain = ["run", *STAGES]
    others = [path.stem for path in sorted(conf_files.CONF.glob("*.yaml")) if path.stem != "hydra"]
    lines = [
        conf_files.first_comment(conf_files.CONF / f"{name}.yaml").partition(". ")[0]
        for name in dict.fromkeys([*chain, *others])
    ]
    for module in (inspect, dashboards):
        lines.append((module.__doc__ or "").partition("\n")[0].replace("`", ""))
    heads = (sentence.rstrip(".").partition(": ") for sentence in lines)
    return {" ".join(call.split()[: 2 + call.startswith("python")]): what for call, _, what in heads}


def main() -> None:
    """Run the command."""
    columns = terminal.width(sys.stdout)
    for call, what in commands().items():
        if columns is None:
            what = textwrap.shorten(what, 70, placeholder=" …")
        print(terminal.wrap(f"{call:<31}{what}", columns, indent=31))
    print("\nAdd --help to a command for its options.")


if __name__ == "__main__":
    main()
