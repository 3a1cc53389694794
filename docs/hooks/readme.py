"""Bring the lines and the picture of the README from one run: what it said, its folder, a browser."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
QUOTED = ("train ", "evaluate-sample_order ", "all done ")
WIDTH = 116  # of a quoted line
SKIPPED = re.compile(r"(?<= tokens, ).*(?=held-out )")
PICTURE = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,1500"


def short(line: str) -> str:
    """Return a line that fits, with the figure that matters, cut after a word."""
    line = SKIPPED.sub("… ", line)
    return line if len(line) <= WIDTH else f"{line[: line.rindex(' ', 0, WIDTH)].rstrip(',')} …"


def main() -> None:
    """Rewrite README.md and docs/images/report.png."""
    said, work = Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2]).resolve()
    lines = [next(line for line in said.splitlines() if line.startswith(name)) for name in QUOTED]
    block = "```text\n" + "\n".join(map(short, lines)) + "\n```"
    README.write_text(re.sub(r"```text\n.*?\n```", lambda _: block, README.read_text("utf-8"), count=1, flags=re.S))
    page, picture = work / "report" / "report.html", ROOT / "docs" / "images" / "report.png"
    subprocess.run([sys.argv[3], *PICTURE.split(), f"--screenshot={picture}", page.as_uri()], check=True)


if __name__ == "__main__":
    main()
