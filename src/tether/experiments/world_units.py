"""What rewards and costs mean in the worlds that people recognise: numbers for figures, claims and pages."""

from dataclasses import dataclass

from tether.world.heating import KELVIN, MOST_SAVED

EUROS = 10.0
"""Per cohort and day: what the ad world's reward is a share of."""


@dataclass(frozen=True)
class Meaning:
    """A world in its own words: `reward` units of gain per unit of reward, `cost` units of harm per unit of cost."""

    title: str
    episode: str  # what an episode is
    unit: str  # in which gain is counted
    gain: str  # the gain of one episode
    reward: float
    harm: str  # what an excess over τ is counted in
    cost: float


MEANINGS = {
    "dosing": Meaning(
        title="Dose titration",
        episode="patient, six monthly visits",
        unit="quality-adjusted months",
        gain="quality-adjusted months per patient",
        reward=1.0,
        harm="points of toxicity",
        cost=1.0,
    ),
    "heating": Meaning(
        title="Heating",
        episode="house, one day",
        unit="kWh",
        gain="kWh saved per house and day",
        reward=MOST_SAVED,
        harm="K",
        cost=KELVIN,
    ),
    "ad-load": Meaning(
        title="Ad load",
        episode="cohort, one week",
        unit="euros",
        gain="euros per cohort and week",
        reward=EUROS,
        harm="percentage points",
        cost=100.0,
    ),
}
"""By the registry name of the world."""
