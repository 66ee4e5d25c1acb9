"""Extension of mkdocstrings: in docstrings the star of γ* and the index of ‖x‖_G are symbols, not emphasis."""

import re
from typing import Any

import griffe

SYMBOL = re.compile(r"(?<=[γθμηwxV])\*(?!\*)|(?<![\w\\])_(?=[\w{(])")


class Symbols(griffe.Extension):
    """Escapes symbols outside of code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that is read."""
        if obj.docstring is not None:
            parts = re.split(r"(`[^`]*`)", obj.docstring.value)
            parts[::2] = [SYMBOL.sub(lambda match: "\\" + match.group(), part) for part in parts[::2]]
            obj.docstring.value = "".join(parts)
