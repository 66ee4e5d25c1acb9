"""One study, one file: its panels, claims and table; the spec lies beside it as TOML.

A study without a file of its own, shipped or a user's, is shown as figure 1 is, as figure 2 if it counts interaction
units, or as the real worlds are if it counts their steps.
"""

from importlib import import_module

from tether.lab.books import Results
from tether.lab.view import View

OWN = {
    "figure1": "figure1",
    "figure2": "figure2",
    "learning": "learning",
    "learning-wide": "learning",
    "learning-grid": "learning",
    "worlds": "worlds",
    "twins": "twins",
    "league": "league",
    "league-mdp": "league",
    "league-axes": "league",
    "real": "real",
    "real-buildings": "real_cells",
    "real-patients": "real_cells",
}
"""Studies that a file shows, each its own or that of its kind."""
OTHERS = {"episode": "figure1", "unit": "figure2", "step": "real"}


def view_of(results: Results) -> View:
    """How these results are shown. Only the file that is asked for is imported."""
    name = OWN.get(results.study, OTHERS[results.per])
    view: View = import_module(f"tether.lab.studies.{name}").VIEW
    return view
