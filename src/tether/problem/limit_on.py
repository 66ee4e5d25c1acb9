"""What a limit is on: each single action, or the average over the learner's own draw between actions."""

from typing import Any, Literal, get_args

from tether.errors import InputError, nearest

LimitOn = Literal["single actions", "average over draws"]

CAVEAT = "single actions may then exceed the limit: right for risks, wrong for temperatures"
"""What must stand beside every proposal to limit an average."""

ASK = f'limit_on="average over draws" ({CAVEAT})'
"""The proposal as messages write it."""


def is_average(limit_on: Any) -> bool:
    """Return whether the limit is on the average over draws. Anything but the two phrases is refused."""
    words = list(get_args(LimitOn))
    if not (isinstance(limit_on, str) and limit_on in words):
        raise InputError(
            f"limit_on must be 'single actions' or 'average over draws', but is {limit_on!r}"
            f"{nearest(limit_on, words) if isinstance(limit_on, str) else '.'}"
        )
    return bool(limit_on == words[1])
