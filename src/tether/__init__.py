"""Tether: reinforcement learning that keeps every step's cost under a threshold while it learns."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("tether-rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from tether.agents.certified import CertifiedAgent, CertifiedSet, certified_set
    from tether.agents.lsvi_ucb import LsviConfig, LsviUcb
    from tether.agents.rslucb_qvi import RslucbQvi
    from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
    from tether.check.monitor import Alarm, Monitor
    from tether.check.report import Finding, Report
    from tether.errors import (
        AlteredLog,
        AssumptionError,
        EmptySafeSet,
        InputError,
        StateFileError,
        StoreBusy,
        StoreError,
        TetherError,
    )
    from tether.gym.bridge import Bridge
    from tether.gym.loop import learn
    from tether.gym.result import LearningResult
    from tether.live.advisor import Advisor
    from tether.live.certificate import Certificate
    from tether.live.decisions import LiveDecision
    from tether.live.guards import Guards
    from tether.live.modes import Criteria
    from tether.problem.action_sets import FiniteActions, StarActions
    from tether.problem.problem import Problem
    from tether.records import CostBound, Decision, Mixture, Radius, StarAction, Transition
    from tether.world.ad_load import ad_load
    from tether.world.dosing import dosing
    from tether.world.frozen_lake import frozen_lake
    from tether.world.heating import heating
    from tether.world.linear_mdp import LinearMDP
    from tether.world.misspecified import MisspecifiedMDP
    from tether.world.not_star_convex import not_star_convex
    from tether.world.synthetic import synthetic

_HOME = {
    "Problem": "tether.problem.problem",
    "FiniteActions": "tether.problem.action_sets",
    "StarActions": "tether.problem.action_sets",
    "StarAction": "tether.records",
    "Decision": "tether.records",
    "CostBound": "tether.records",
    "Radius": "tether.records",
    "Mixture": "tether.records",
    "Transition": "tether.records",
    "SlucbQvi": "tether.agents.slucb_qvi",
    "SlucbConfig": "tether.agents.slucb_qvi",
    "RslucbQvi": "tether.agents.rslucb_qvi",
    "LsviUcb": "tether.agents.lsvi_ucb",
    "LsviConfig": "tether.agents.lsvi_ucb",
    "CertifiedAgent": "tether.agents.certified",
    "CertifiedSet": "tether.agents.certified",
    "certified_set": "tether.agents.certified",
    "learn": "tether.gym.loop",
    "LearningResult": "tether.gym.result",
    "Bridge": "tether.gym.bridge",
    "Advisor": "tether.live.advisor",
    "LiveDecision": "tether.live.decisions",
    "Certificate": "tether.live.certificate",
    "Guards": "tether.live.guards",
    "Criteria": "tether.live.modes",
    "Monitor": "tether.check.monitor",
    "Alarm": "tether.check.monitor",
    "Report": "tether.check.report",
    "Finding": "tether.check.report",
    "LinearMDP": "tether.world.linear_mdp",
    "synthetic": "tether.world.synthetic",
    "not_star_convex": "tether.world.not_star_convex",
    "frozen_lake": "tether.world.frozen_lake",
    "dosing": "tether.world.dosing",
    "heating": "tether.world.heating",
    "ad_load": "tether.world.ad_load",
    "MisspecifiedMDP": "tether.world.misspecified",
    "TetherError": "tether.errors",
    "AssumptionError": "tether.errors",
    "InputError": "tether.errors",
    "EmptySafeSet": "tether.errors",
    "StateFileError": "tether.errors",
    "StoreError": "tether.errors",
    "StoreBusy": "tether.errors",
    "AlteredLog": "tether.errors",
}
"""Public names, in reading order, and where each lives. Imported on first use: scipy and gymnasium are slow to load."""

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tether' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
