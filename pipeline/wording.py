"""Numbers as people write them."""


def count(number: int, noun: str) -> str:
    """So many of a thing: `1 document`, `2,301 documents`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
