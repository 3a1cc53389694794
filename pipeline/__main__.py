"""`python -m pipeline`: the commands, one a line."""

import textwrap

from pipeline import dag, entry, inspect, reference


def commands() -> dict[str, str]:
    """What every command does, by its module or script, in the order of the work."""
    chain = ["run", *dag.SCHEMAS]
    others = [path.stem for path in sorted(entry.CONF.glob("*.yaml")) if path.stem != "hydra"]
    told = [
        reference.first_comment(entry.CONF / f"{name}.yaml").partition(". ")[0]
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
    for call, what in commands().items():
        print(f"{call:<29}{textwrap.shorten(what, 70, placeholder=' …')}")
    print("\n--help after any of them says what it takes.")


if __name__ == "__main__":
    main()
