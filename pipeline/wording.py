"""Numbers as people write them."""


def many(number: int, noun: str, ending: str = "s") -> str:
    """So many of a thing: `1 document`, `2,301 documents`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"
