"""MkDocs hooks: notebooks become pages, long names in tables break where a reader expects it, pictures open alone,
and x_{h,s} in a text has its index below the line."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import page

CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(<code>)([^<]*)(</code>)")
PIECE = re.compile(r"<(pre|code|script|style|title)\b.*?</\1>|<[^>]+>|[^<]+", re.DOTALL)
"""What is left as it is, a tag, or text."""
INDEX = r"(?:\{([^{}]+)\}|\(([^()]+)\)|([a-z]+|[A-Z]|\d+|[½⊥+\u0370-\u03ff]))"
LETTER = r"(?:(?<![A-Za-z_])(?:[A-Za-z]|sup)|[^\W\d_A-Za-z])[\u0300-\u036f'\u2019]?"
LOW = re.compile(rf"({LETTER}|[‖²*)\]])_{INDEX}")
HIGH = re.compile(rf"(?<=\S)\^{INDEX}")
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


def on_post_page(output: str, **_: object) -> str:
    """Set the indices of a page's text; after search has read it, so that τ_h is found as it is typed."""
    return with_indices(output)


def with_indices(html: str) -> str:
    """Indices below and powers above the line: a_0, V_h^k, A_{h,s}, 2^(n+1). Code stays as it is."""

    def low(text: str) -> str:
        return LOW.sub(lambda found: f"{found[1]}<sub>{low(found[2] or found[3] or found[4])}</sub>", text)

    def set_apart(piece: re.Match[str]) -> str:
        text = piece.group()
        if text.startswith("<"):
            return text
        return HIGH.sub(lambda found: f"<sup>{found[1] or found[2] or found[3]}</sup>", low(text))

    return PIECE.sub(set_apart, html)
