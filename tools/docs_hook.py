"""MkDocs hooks: notebooks become pages, long names in tables break where a reader expects it, pictures open alone."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import page

CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(<code>)([^<]*)(</code>)")
PICTURE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')


def on_files(files: Files, config: Any, **_: object) -> Files:
    """Add a page for each notebook, beside it."""
    for found in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = page(Path(config.docs_dir, found.src_uri))
        files.append(File.generated(config, found.src_uri.removesuffix(".ipynb") + ".md", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links to a notebook, which is what a reader of the repository can open, lead to its page."""
    return re.sub(r"(\]\([\w./-]+)\.ipynb\)", r"\1.md)", markdown)


def on_page_content(html: str, **_: object) -> str:
    """Mark where the code in table cells may break: after a dot, slash, colon or underscore. Link pictures to
    themselves: on a phone a figure of three panels can be read only alone."""

    def mark(code: re.Match[str]) -> str:
        return code.group(1) + re.sub(r"(?<=\w)((?:::|[./_])(?=\w))", r"\1<wbr>", code.group(2)) + code.group(3)

    html = PICTURE.sub(lambda picture: f'<a href="{picture.group(1)}">{picture.group()}</a>', html)
    return CELL.sub(lambda cell: CODE.sub(mark, cell.group()), html)
