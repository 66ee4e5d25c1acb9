"""Run notebooks as they are printed, and store in them what they print: `python tools/notebooks.py NOTEBOOK …`.

Each runs in a fresh interpreter, in its own folder, from the first cell to the last; pictures are files that its cells
write beside it. `page` makes of it what the site shows.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "\x1e"
"""Printed between two cells, to tell whose text is whose."""


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of a kind, "code" or "markdown", in their order."""
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


def run(notebook: Path, folder: Path) -> list[str]:
    """What each code cell prints, all of them in one fresh interpreter that works in a folder."""
    sources = ["".join(cell["source"]) for cell in cells(notebook, "code")]
    program = f"\nprint({MARK!r}, end='', flush=True)\n".join(sources)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    return done.stdout.split(MARK)


def store(notebook: Path) -> None:
    """Run it where it is, and write what it printed into it."""
    whole, printed = json.loads(notebook.read_text()), iter(run(notebook, notebook.parent))
    for cell in whole["cells"]:
        if cell["cell_type"] == "code":
            text = next(printed).splitlines(keepends=True)
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    notebook.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def page(notebook: Path) -> str:
    """The notebook as Markdown: its text, its code, and what that printed."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        parts += [f"```text\n{''.join(output['text']).rstrip()}\n```" for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store(Path(name))
