"""What a study offers to those who show it: claims, charts, a table, pictures. Its file makes one `View` of it."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tether.lab.books import Cell, Results
from tether.lab.plots import Chart, radius_note

ORIGINS = {"theorem": "theorem", "default": "default", "tuned": "tuned", "exact": "exact (told γ*)", "none": "none"}
"""Where a radius comes from, in words."""


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds here, and what says so: `holds` is a verdict on these results."""

    id: str
    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Table:
    """The numbers of a study: plain data, lines for a terminal, and whole tables for the page."""

    rows: list[dict[str, Any]]
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    html: list[str]

    @property
    def markdown(self) -> str:
        """The lines as a table for the documentation."""
        heads = "| " + " | ".join(self.heads) + " |\n|" + "---|" * len(self.heads)
        return "\n".join([heads, *("| " + " | ".join(line) + " |" for line in self.lines)]) + "\n"


@dataclass(frozen=True)
class Picture:
    """A picture besides the charts: its file's name, a heading, its content in words, and its PNG at some dpi."""

    name: str
    title: str
    words: str
    draw: Callable[[int], bytes]


@dataclass(frozen=True, kw_only=True)
class View:
    """How results are judged, drawn and tabulated. `summary` says in a sentence what a table's rows are.

    `files` are written beside the figures, by name. `more` are further tables for a terminal and for pages, `values`
    single numbers for pages. `stored` names the columns of the table's rows that pages may name; none are all.
    """

    charts: Callable[[Results], list[Chart]]
    claims: Callable[[Results], list[Claim]]
    table: Callable[[Results], Table]
    summary: Callable[[Results, list[dict[str, Any]]], str]
    pictures: Callable[[Results], list[Picture]] = lambda results: []
    files: Callable[[Results], dict[str, bytes]] = lambda results: {}
    more: Callable[[Results], dict[str, Table]] = lambda results: {}
    values: Callable[[Results], dict[str, float | str]] = lambda results: {}
    stored: Sequence[str] = ()


def counted(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def numbered(name: str, seen: dict[str, int]) -> str:
    """An id that is unique: the second of a name ends with -2. Counts in `seen`."""
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


def agent_head(cell: Cell, note: str = "") -> str:
    """The head of an agent's row on the page."""
    return f'<th scope="row">{escape(cell.name)}<small>{escape(note or radius_note(cell))}</small></th>'


def origin_columns(*origins: str) -> str:
    """Columns that say whose β it is."""
    return "".join(f'<td class="text">{escape(ORIGINS.get(origin, origin))}</td>' for origin in origins)


def html_table(name: str, caption: str, heads: Sequence[str], body: str, *, words: int = 0) -> str:
    """A table that scrolls sideways by itself; the last `words` columns hold words, with their heads to the left."""
    first, *others = (escape(head) for head in heads)
    top = f'<th scope="col" class="first">{first}</th>' + "".join(
        f'<th scope="col"{" class=text" if place >= len(others) - words else ""}>{head}</th>'
        for place, head in enumerate(others)
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def plain_table(
    study: str, caption: str, rows: list[dict[str, Any]], heads: Sequence[str], lines: list[Sequence[str]]
) -> Table:
    """A table whose page shows the lines of the terminal."""
    body = "\n".join(
        f'<tr><th scope="row">{head}</th>{"".join(f"<td>{entry}</td>" for entry in entries)}</tr>'
        for head, *entries in lines
    )
    page = html_table(f"Numbers of {study}", caption, [head.capitalize() for head in heads], body)
    return Table(rows, heads, lines, [page])


def table_files(study: str, table: Table, markdown: str) -> dict[str, bytes]:
    """The rows as Parquet and their Markdown, by the names of the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(table.rows), sink, compression="zstd")
    return {f"{study}.parquet": sink.getvalue(), f"{study}.md": markdown.encode()}
