"""A pytest plugin that records which functions of the package each test enters.

TETHER_ENTERED names a JSON file {test: [dotted names]}; the plugin writes {test: [names that it entered]} to a file of
the same name with `.out` added. A test is a test function, one of its cases, or a class of tests. It is stopped as soon
as it has entered all that is asked of it: statistical tests and kernels in plain Python then take moments, not hours.
"""

import importlib
import inspect
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

PATIENCE = 20.0
"""Seconds after which a test that has not entered its functions is given up."""


def resolve(dotted):
    """The module, class, function, method or property that a dotted name stands for."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            thing = getattr(thing, name) if isinstance(thing, ModuleType) else inspect.getattr_static(thing, name)
        return thing
    raise ModuleNotFoundError(dotted)


def code_named(dotted):
    """The code object that a dotted name stands for; None if there is no such thing, or it is not plain Python."""
    try:
        return code_of(resolve(dotted))
    except (ModuleNotFoundError, AttributeError):
        return None


def code_of(thing):
    """The code object of a function, method or property in plain Python; None for anything else."""
    thing = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    return getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None


class Recorder:
    """Notes function entries while a test is set up and run."""

    def __init__(self, asked):
        self.asked = {test: set(names) for test, names in asked.items()}
        self.entered = {test: set() for test in asked}
        self.name_of = {code_named(name): name for names in asked.values() for name in names}

    def test_of(self, item):
        """The entry of the list that a collected test belongs to: its case, its function or its class."""
        function = item.nodeid.partition("[")[0]
        return next(test for test in (item.nodeid, function, function.rpartition("::")[0]) if test in self.asked)

    def watch(self, item, stops):
        """Trace entries from now on. If it `stops`, the test ends once everything was entered, or patience is over."""
        test, until = self.test_of(item), time.monotonic() + PATIENCE
        asked, entered = self.asked[test], self.entered[test]

        def on_entry(frame, event, argument):
            name = self.name_of.get(frame.f_code)
            if name is not None:
                entered.add(name)
            if stops and (asked <= entered or time.monotonic() > until):
                raise pytest.skip.Exception("stopped")

        sys.settrace(on_entry)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        test = self.test_of(item)
        if self.asked[test] <= self.entered[test]:
            pytest.skip("entered in another case")
        self.watch(item, stops=False)  # a fixture that other tests share is not broken off
        try:
            return (yield)
        finally:
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        self.watch(item, stops=True)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    def pytest_sessionfinish(self):
        out = Path(os.environ["TETHER_ENTERED"] + ".out")
        out.write_text(json.dumps({test: sorted(names) for test, names in self.entered.items()}))


def pytest_configure(config):
    if "TETHER_ENTERED" in os.environ:
        config.pluginmanager.register(Recorder(json.loads(Path(os.environ["TETHER_ENTERED"]).read_text())))
