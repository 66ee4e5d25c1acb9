"""MkDocs hook: long names in tables may break after a dot, slash, colon or underscore, and nowhere else."""

import re

CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(<code>)([^<]*)(</code>)")


def on_page_content(html: str, **_: object) -> str:
    """Mark the places where the code in table cells may break."""

    def mark(code: re.Match[str]) -> str:
        return code.group(1) + re.sub(r"(?<=\w)((?:::|[./_])(?=\w))", r"\1<wbr>", code.group(2)) + code.group(3)

    return CELL.sub(lambda cell: CODE.sub(mark, cell.group()), html)
