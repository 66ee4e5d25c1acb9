"""Tether: reinforcement learning that keeps the expected cost of every step under a threshold while it learns."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("tether-rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from tether.agents.certified import CertifiedAgent, CertifiedSet, certified_set
    from tether.agents.lsvi import LsviConfig, LsviUcb
    from tether.agents.rslucb import RslucbQvi
    from tether.agents.slucb import SlucbConfig, SlucbQvi
    from tether.assumptions.drift import Drift
    from tether.assumptions.lost import Lost
    from tether.assumptions.misfit import Misfit
    from tether.assumptions.noise import Bounded
    from tether.assumptions.realised import Realised
    from tether.assumptions.safe_cost import SafeCost
    from tether.check.monitor import Alarm, Monitor
    from tether.check.report import Finding, Report
    from tether.errors import (
        AlteredLog,
        AssumptionError,
        EmptySafeSet,
        InputError,
        MissingExtra,
        StateFileError,
        StoreBusy,
        StoreError,
        TetherError,
    )
    from tether.gym.bridge import Bridge
    from tether.gym.learn import Run, learn
    from tether.gym.result import LearningResult
    from tether.gym.spaces import Mask, Targets
    from tether.lab.worlds.ad_load import ad_load
    from tether.lab.worlds.bottling import bottling
    from tether.lab.worlds.dosing import dosing
    from tether.lab.worlds.heating import heating
    from tether.lab.worlds.lake import frozen_lake
    from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP, Streams
    from tether.lab.worlds.synthetic import not_star_convex, synthetic
    from tether.live.advisor import Advisor
    from tether.live.answers import LiveDecision
    from tether.live.certificate import Certificate
    from tether.live.policy import Criteria, Guards
    from tether.live.states import StateCodec
    from tether.live.upkeep import Upkeep
    from tether.problem.action_sets import FiniteActions, StarActions
    from tether.problem.constraint import Constraint
    from tether.problem.names import Names
    from tether.problem.problem import Problem, StateKeys
    from tether.records import CostBound, Decision, Mixture, Radius, StarAction, Transition

_HOME = {
    "Problem": "tether.problem.problem",
    "Constraint": "tether.problem.constraint",
    "SafeCost": "tether.assumptions.safe_cost",
    "Bounded": "tether.assumptions.noise",
    "Misfit": "tether.assumptions.misfit",
    "Drift": "tether.assumptions.drift",
    "Lost": "tether.assumptions.lost",
    "Realised": "tether.assumptions.realised",
    "StateKeys": "tether.problem.problem",
    "Names": "tether.problem.names",
    "FiniteActions": "tether.problem.action_sets",
    "StarActions": "tether.problem.action_sets",
    "StarAction": "tether.records",
    "Decision": "tether.records",
    "CostBound": "tether.records",
    "Radius": "tether.records",
    "Mixture": "tether.records",
    "Transition": "tether.records",
    "SlucbQvi": "tether.agents.slucb",
    "SlucbConfig": "tether.agents.slucb",
    "RslucbQvi": "tether.agents.rslucb",
    "LsviUcb": "tether.agents.lsvi",
    "LsviConfig": "tether.agents.lsvi",
    "CertifiedAgent": "tether.agents.certified",
    "CertifiedSet": "tether.agents.certified",
    "certified_set": "tether.agents.certified",
    "learn": "tether.gym.learn",
    "LearningResult": "tether.gym.result",
    "Run": "tether.gym.learn",
    "Bridge": "tether.gym.bridge",
    "Mask": "tether.gym.spaces",
    "Targets": "tether.gym.spaces",
    "Advisor": "tether.live.advisor",
    "Upkeep": "tether.live.upkeep",
    "LiveDecision": "tether.live.answers",
    "Certificate": "tether.live.certificate",
    "StateCodec": "tether.live.states",
    "Guards": "tether.live.policy",
    "Criteria": "tether.live.policy",
    "Monitor": "tether.check.monitor",
    "Alarm": "tether.check.monitor",
    "Report": "tether.check.report",
    "Finding": "tether.check.report",
    "LinearMDP": "tether.lab.worlds.linear_mdp",
    "Streams": "tether.lab.worlds.linear_mdp",
    "synthetic": "tether.lab.worlds.synthetic",
    "not_star_convex": "tether.lab.worlds.synthetic",
    "frozen_lake": "tether.lab.worlds.lake",
    "dosing": "tether.lab.worlds.dosing",
    "heating": "tether.lab.worlds.heating",
    "ad_load": "tether.lab.worlds.ad_load",
    "bottling": "tether.lab.worlds.bottling",
    "MisspecifiedMDP": "tether.lab.worlds.linear_mdp",
    "TetherError": "tether.errors",
    "AssumptionError": "tether.errors",
    "InputError": "tether.errors",
    "EmptySafeSet": "tether.errors",
    "MissingExtra": "tether.errors",
    "StateFileError": "tether.errors",
    "StoreError": "tether.errors",
    "StoreBusy": "tether.errors",
    "AlteredLog": "tether.errors",
}
"""Public names, in reading order, and where each lives. Imported on first use: scipy and gymnasium are slow to load."""

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in ("features", "gym"):  # `import tether` is enough for tether.gym.remote
        return import_module(f"tether.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tether' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
