"""The problem behind the logs of the audit tests, as the command line imports it."""

from tether.errors import AssumptionError

from .live_worlds import small_world


def problem():
    return small_world(3, horizon=2)[0].problem


def other_problem():
    return small_world(4, horizon=2)[0].problem


def broken_problem():
    raise AssumptionError("Assumption 2 needs tau_h(s) < tau.")
