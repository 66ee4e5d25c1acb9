"""Ids of decisions and of requests."""

import secrets
import time


def new_id() -> str:
    """A random id, 32 hex digits, that begins with the time in milliseconds.

    Ids of one hour are then neighbours in a database's index, which writes a few pages over and over, and not a
    different one for each. A clock that jumps costs that order, and nothing else: 80 bits are random.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
