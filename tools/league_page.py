"""Put a run of the league into the documentation: docs/league-tables.md is written anew, pictures are copied.

tether reproduce league
python tools/league_page.py out
"""

import re
import shutil
import sys
from pathlib import Path

from tether.lab.books import load
from tether.lab.studies import league

DOCS = Path(__file__).parents[1] / "docs"
TITLES = {
    "league": "Bandits (H = 1)",
    "league-mdp": "Planners",
    "league-axes": "Axes of difficulty, by theorems alone",
}
HEAD = """---
search:
  boost: 0.1
---

# The league's tables

Written by `python tools/league_page.py` from a run of `{command}`; [The league](league.md) says what is compared.
Regret: mean and 95 % interval (Student's t) over seeds. Violations: steps whose true expected cost is over τ, in all
runs together; runs: in how many. Own constraint broken: in steps, in episodes where a method or a world limits them, or
in measured costs over τ, with how many of them its η allows.
Decisions per second are of processor time, and count the bookkeeping of the study, too. Every cell is made by

    {command} --agent NAME --world "TITLE OF THE TABLE"

where NAME stands under each title of "Methods" ("Tether, all defaults" and "by theorems alone" are one, `slucb-qvi`).
(Frozen Lake, OPSE's linear instances and most axes are part of a quick look only if they are named so.)
"""


def main(out: Path) -> None:
    """Take what a run has written."""
    found = {study: folder for study in TITLES for folder in (out / f"{study}-quick", out / study) if folder.is_dir()}
    quick = " --quick" if any(folder.name.endswith("-quick") for folder in found.values()) else ""
    results = {study: load(folder) for study, folder in found.items()}
    rows = [row for one in results.values() for row in league.table(one).rows]
    anchors = results["league"].folder / "anchors"
    if not any(league.badges(anchors)):
        sys.exit(f"{anchors} was played by other code than this: `tether reproduce league{quick}` plays it again.")
    parts = [HEAD.format(command="tether reproduce league" + quick)]
    parts += ["## Anchors", league.anchors_markdown(anchors)]
    parts += ["## Methods", league.methods_markdown(rows)]
    for study, one in results.items():
        parts += [f"## {TITLES[study]}", league.markdown(one).strip()]
        for picture in (one.folder / "figures").glob(f"{study}*.png"):
            shutil.copy(picture, DOCS / picture.name)
    shutil.copy(results["league"].folder / "figures" / "anchor-hutchinson-large-b.png", DOCS / "league-anchors.png")
    text = re.sub(r"(?<=[γθμ])\*", r"\\*", "\n\n".join(parts))  # a star, not emphasis
    (DOCS / "league-tables.md").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
