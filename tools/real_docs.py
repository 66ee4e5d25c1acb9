"""Put what `tether reproduce real` found into docs/real-worlds.md: the table between its two marks, and the pictures.

python tools/real_docs.py out/real out/real-buildings out/real-patients
"""

import re
import shutil
import sys
from pathlib import Path

from tether.lab.books import load
from tether.lab.studies import real, real_cells

DOCS = Path(__file__).parents[1] / "docs"


def main(folder: Path) -> None:
    """Write the page and copy the pictures."""
    results, page = load(folder), DOCS / "real-worlds.md"
    name, study = ("table", real) if results.study == "real" else (results.study, real_cells)
    marks = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    table = study.table(results).markdown
    text, marked = marks.subn(lambda found: found[1] + table + found[2], page.read_text("utf-8"))
    if marked != 1:
        raise SystemExit(f"{page} must have one pair of marks for the table, but has {marked}.")
    page.write_text(text, "utf-8")
    for picture in study.pictures(results):
        shutil.copyfile(folder / "figures" / f"{picture.name}.png", DOCS / f"{picture.name}.png")


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        main(Path(folder))
