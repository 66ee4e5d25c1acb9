"""How an agent backs values up, and when: the options `backup` and `replan`, and what "auto" stands for.

Both touch exploration only: a decision rests on cost data that were there when it was made, whatever the plan's age.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

from tether.agents.checks import check_choice
from tether.errors import InputError
from tether.problem.problem import Problem

if TYPE_CHECKING:
    from tether.agents.lsvi_ucb import LsviConfig
    from tether.agents.slucb_qvi import SlucbConfig

Backup = Literal["auto", "tables", "lean"]
Replan = Literal["auto", "every-episode", "on-doubling", "on-growth"]
BACKUPS = ("auto", "tables", "lean")
REPLANS = ("auto", "every-episode", "on-doubling", "on-growth")

GROWTH = 0.25
"""What "on-growth" waits for: so many more outcomes, as a part of those that the last plan had.

A plan over n next states costs O(n), so that all plans together cost at most (1 + GROWTH)/GROWTH = 5 times the last."""

Config = TypeVar("Config", "SlucbConfig", "LsviConfig")


def check_backup(backup: object, replan: object) -> None:
    """Refuse misspelt options by naming the right ones."""
    check_choice("backup", backup, BACKUPS)
    check_choice("replan", replan, REPLANS)


def settled(config: Config, problem: Problem, mixes: bool) -> Config:
    """The configuration with "auto" replaced by what it stands for here.

    Tables where the problem lists its states (they come back) or where mixtures are planned, else lean. A plan in every
    episode with tables, which follow new data cheaply, and on growth without.
    """
    if mixes and config.backup == "lean":
        raise InputError(
            "backup='lean' plans single actions, but RSLUCB-QVI plans mixtures, which need tables: "
            "use backup='tables', or SLUCB-QVI."
        )
    backup: Backup = config.backup
    if backup == "auto":
        backup = "tables" if mixes or problem.states is not None else "lean"
    replan: Replan = config.replan
    if replan == "auto":
        replan = "on-growth" if backup == "lean" else "every-episode"
    return replace(config, backup=backup, replan=replan)
