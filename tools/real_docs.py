"""Put what `tether reproduce real` found into docs/real-worlds.md: the table between its two marks, and the pictures.

python tools/real_docs.py out/real
"""

import re
import shutil
import sys
from pathlib import Path

from tether.lab.books import load
from tether.lab.studies import real

MARKS = re.compile(r"(<!-- table: begin -->\n).*?(<!-- table: end -->)", re.DOTALL)
DOCS = Path(__file__).parents[1] / "docs"


def main(folder: Path) -> None:
    """Write the page and copy the pictures."""
    results, page = load(folder), DOCS / "real-worlds.md"
    text, marked = MARKS.subn(lambda found: found[1] + real.markdown(results) + found[2], page.read_text("utf-8"))
    if marked != 1:
        raise SystemExit(f"{page} must have one pair of marks for the table, but has {marked}.")
    page.write_text(text, "utf-8")
    for picture in real.pictures(results):
        shutil.copyfile(folder / "figures" / f"{picture.name}.png", DOCS / f"{picture.name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
