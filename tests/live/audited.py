"""The problem behind the logs of the audit tests, as the command line imports it."""

from tether.errors import AssumptionError
from worlds import world_and_streams


def problem():
    return world_and_streams(3, horizon=2)[0].problem


def other_problem():
    return world_and_streams(4, horizon=2)[0].problem


def broken_problem():
    raise AssumptionError("Assumption 2 needs tau_h(s) < tau.")
