"""Where the teacher steps in."""

from collections import deque

import numpy as np
import pytest

from tether.lab.cisr.env import HR, NONE, SR1, SR2, TEACHERS_CHOICE, danger_distance, trigger_cells
from tether.lab.worlds.lake import ACTIONS, CELLS, DANGER, ENDS, GOAL, START, cell, neighbour


def moves_from(sources):
    """Moves from the nearest source on an empty board: an independent count of the L1 distance."""
    distance = dict.fromkeys(sources, 0)
    frontier = deque(sources)
    while frontier:
        here = frontier.popleft()
        for action in range(len(ACTIONS)):
            there = neighbour(here, action)
            if there not in distance:
                distance[there] = distance[here] + 1
                frontier.append(there)
    return np.array([distance[state] for state in range(CELLS)])


def test_distances_by_hand():
    """(0,0) is two moves from (2,0); the goal (9,3) is three from (7,2); (0,9) is eight from (4,5)."""
    distance = danger_distance()
    assert [distance[cell(*place)] for place in ((0, 0), (1, 0), (2, 0), (9, 3), (0, 9))] == [2, 1, 0, 3, 8]


def test_the_distance_is_the_number_of_moves_to_danger():
    np.testing.assert_array_equal(danger_distance(), moves_from(DANGER))


@pytest.mark.parametrize("intervention", TEACHERS_CHOICE, ids=lambda i: i.name)
def test_start_goal_and_danger_never_trigger(intervention):
    assert not trigger_cells(intervention)[[START, *ENDS]].any()


@pytest.mark.parametrize("intervention", TEACHERS_CHOICE, ids=lambda i: i.name)
def test_every_free_neighbour_of_danger_triggers(intervention):
    """So danger cannot be entered: one would have to stand beside it first."""
    beside = {neighbour(danger, action) for danger in DANGER for action in range(len(ACTIONS))} - set(DANGER)
    assert trigger_cells(intervention)[sorted(beside)].all()


def test_the_interventions_are_the_papers():
    assert [(i.distance, i.reaction, i.limit) for i in (SR1, SR2, HR)] == [
        (2, "put back", 0.1),
        (1, "put back", 0.1),
        (1, "end", 0.0),
    ]
    np.testing.assert_array_equal(trigger_cells(SR2), trigger_cells(HR))
    assert (trigger_cells(SR2) & ~trigger_cells(SR1)).sum() == 0
    assert trigger_cells(SR1)[cell(1, 1)] and not trigger_cells(SR2)[cell(1, 1)]
    assert not trigger_cells(NONE).any()


@pytest.mark.parametrize("intervention", TEACHERS_CHOICE, ids=lambda i: i.name)
def test_the_goal_can_be_reached_without_an_intervention(intervention):
    forbidden = trigger_cells(intervention)
    seen, frontier = {START}, deque([START])
    while frontier:
        here = frontier.popleft()
        for action in range(len(ACTIONS)):
            there = neighbour(here, action)
            if there not in seen and not forbidden[there] and there not in DANGER:
                seen.add(there)
                frontier.append(there)
    assert GOAL in seen
