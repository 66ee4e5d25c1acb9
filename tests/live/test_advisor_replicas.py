"""One log, several replicas: they agree bit for bit, a restart continues, and deciding on an older state is safe."""

import numpy as np
import pytest

from limits import stated
from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.agents.slucb import SlucbConfig
from tether.errors import AlteredLog, InputError
from tether.live.learner import Learner
from tether.live.log.chain import genesis_of
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from tether.live.replica import Replica, load
from tether.problem.problem import Problem
from worlds import world_and_streams


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=2)[0]


def same_decision(one, other):
    """Equal in everything but the id, and the place in the log."""
    assert one.action == other.action
    assert one.certificate.limits == other.certificate.limits
    assert one.certificate.model_hash == other.certificate.model_hash
    assert (one.reason, one.mode, one.certified) == (other.reason, other.mode, other.certified)


def test_two_replicas_of_one_log_agree_bit_for_bit(world):
    store = MemoryStore()
    one = live_advisor(world.problem, store)
    two = Advisor(world.problem, store, upkeep=Upkeep(refresh=None))
    plants = Plant(world.true_gamma, seed=1), Plant(world.true_gamma, seed=2)
    for turn in range(10):
        plants[0].play(one, 4, horizon=2, episode=f"one{turn}")
        plants[1].play(two, 4, horizon=2, episode=f"two{turn}")
    one.sync()
    two.sync()
    assert one.replica.to_bytes() == two.replica.to_bytes()
    assert one.status() == two.status()
    for step in range(2):
        for state in range(4):
            left, right = one.decide(state, step), two.decide(state, step)
            assert left.certificate.limits == right.certificate.limits
            assert left.certificate.model_hash == right.certificate.model_hash
            assert left.action == right.action


@pytest.mark.parametrize(("kind", "snapshot"), [("memory", 0), ("sqlite", 17), ("memory", 40)])
def test_a_restart_is_a_snapshot_and_a_replay_equal_bit_for_bit(world, tmp_path, kind, snapshot):
    """Stopped after 40 decisions, with a snapshot on the way, at the end, or none: the twin that went on agrees."""

    def run(store, stops):
        advisor = live_advisor(world.problem, store, ids=iter(f"d{n}" for n in range(1000)).__next__, clock=lambda: 1e9)
        plant = Plant(world.true_gamma)
        decisions = []
        for part, steps in ((0, snapshot), (1, 40 - snapshot), (2, 20)):
            decisions += plant.play(advisor, steps, horizon=2, episode=f"p{part}-") if steps else []
            if stops and part == 0 and snapshot:
                advisor.snapshot()
            if stops and part == 1:
                if kind == "sqlite":
                    advisor.close()
                more = iter(f"d{n}" for n in range(len(decisions), 1000)).__next__
                advisor = Advisor(world.problem, store, upkeep=Upkeep(ids=more, clock=lambda: 1e9, refresh=None))
        return advisor, decisions

    twin, expected = run(MemoryStore(), stops=False)
    restarted, decisions = run(MemoryStore() if kind == "memory" else tmp_path / "log.db", stops=True)
    assert restarted.replica.learner.to_bytes() == twin.replica.learner.to_bytes()
    assert restarted.replica.ledger.to_json() == twin.replica.ledger.to_json()
    for one, other in zip(decisions, expected, strict=True):
        same_decision(one, other)
    same_decision(restarted.decide(1, 1), twin.decide(1, 1))


def test_snapshots_are_saved_on_the_way_and_used(world, tmp_path):
    path = tmp_path / "log.db"
    advisor = live_advisor(world.problem, path, snapshot_every=20)
    Plant(world.true_gamma).play(advisor, 30, horizon=2)
    advisor.close()
    again = Advisor(world.problem, path)
    snapshot = again.store.latest_snapshot()
    assert 42 <= snapshot.seq <= 62
    told = Replica.from_bytes(snapshot.data, Learner(world.problem))
    assert told.head.seq == snapshot.seq
    alone = Replica(Learner(world.problem), genesis_of(again.store.identity()))
    alone.catch_up(again.store, until=snapshot.seq)
    assert alone.to_bytes() == snapshot.data


def test_where_many_decisions_are_open_snapshots_are_as_much_rarer(world, monkeypatch):
    """A snapshot holds every open decision: with 29 of them and more, two in a row are 29 entries apart at least."""
    store = MemoryStore()
    advisor, saved, save = live_advisor(world.problem, store, snapshot_every=2), [], store.save_snapshot
    monkeypatch.setattr(store, "save_snapshot", lambda seq, data: (saved.append(seq), save(seq, data)))
    open_ones = [advisor.decide(0, 0) for _ in range(40)]
    for decision in open_ones[:11]:
        advisor.record(decision.id, 0.1, 0.1, 0)
    assert len(saved) == 1


def test_a_snapshot_that_cannot_be_used_is_passed_over(world):
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    Plant(world.true_gamma).play(advisor, 10, horizon=2)
    store.save_snapshot(advisor.replica.head.seq, b"from another version")
    assert load(store, lambda: Learner(world.problem)).to_bytes() == advisor.replica.to_bytes()


def test_an_entry_that_does_not_continue_the_chain_is_refused(world):
    one, two = live_advisor(world.problem), live_advisor(world.problem)
    one.decide(0)
    two.decide(0)
    two.decide(1)
    with pytest.raises(AlteredLog, match="does not continue"):
        one.replica.apply(two.store.read(one.replica.head.seq, 1)[0])


@pytest.mark.parametrize("behind", [1, 7, 40])
def test_a_replica_that_lags_behind_still_gives_valid_bounds(world, behind):
    """A certificate from older data is one still: the true cost is under its bound, and the bound under τ.

    Two seeds, 40 decisions each, by a replica that has not seen the last `behind` outcomes; δ = 0.01 per run.
    """
    for seed in range(2):
        store = MemoryStore()
        fresh = live_advisor(world.problem, store)
        plant = Plant(world.true_gamma, seed=seed)
        plant.play(fresh, 60, horizon=2)
        stale = Replica(Learner(world.problem, fresh.replica.learner.config), genesis_of(store.identity()))
        others = 0
        for turn in range(20):
            plant.play(fresh, 2, horizon=2, episode=f"t{turn}-")
            stale.catch_up(store, until=max(store.head().seq - 2 * behind, 1))
            for step in range(2):
                state = plant.state()
                decision = stale.learner.propose(step, state, world.problem.look_up(state))
                true = float(plant.true_cost(step, decision.feature)[0])
                assert true <= decision.cost_bound + 1e-9 <= 0.5 + 2e-9
                others += not decision.is_baseline
        assert others > 10
        assert stale.learner.version < fresh.replica.learner.version


def test_deciding_on_a_stale_replica_while_others_record_is_logged_with_what_it_rests_on(world):
    store = MemoryStore()
    one = live_advisor(world.problem, store)
    two = Advisor(world.problem, store, upkeep=Upkeep(refresh=None))
    Plant(world.true_gamma).play(one, 20, horizon=2)
    old = two.replica.head
    decision = two.decide(0)
    assert (decision.certificate.seq, decision.certificate.head) == old
    assert decision.certificate.data_version == 0
    assert decision.seq == 2 + 40 + 1
    assert decision.certificate.holds
    assert two.replica.head.seq == decision.seq  # writing showed the gap, and the gap was read
    assert two.decide(0).certificate.data_version == 20


def test_entries_of_other_processes_are_found_in_time(world, tmp_path):
    one = live_advisor(world.problem, tmp_path / "log.db")
    two = Advisor(world.problem, tmp_path / "log.db", upkeep=Upkeep(refresh=0.0))
    Plant(world.true_gamma).play(one, 6, horizon=2)
    assert two.decide(0).certificate.data_version == 6


def test_the_log_brings_its_configuration_and_refuses_another(world):
    store = MemoryStore()
    config = SlucbConfig(cost_radius="classical", replan="on-doubling")
    one = live_advisor(world.problem, store, config=config, guards=Guards(live_rate=0.5))
    Plant(world.true_gamma).play(one, 6, horizon=2)
    two = Advisor(world.problem, store)
    assert two.replica.learner.config == config
    assert two.replica.ledger.guards == Guards(live_rate=0.5)
    assert two.status().mode == "live"
    entries = store.head().seq
    with pytest.raises(InputError, match=r"another config.*warm_start"):
        Advisor(world.problem, store, config=SlucbConfig())
    with pytest.raises(InputError, match="another watch"):
        Advisor(world.problem, store, watch=False)
    other, _ = world_and_streams(3, horizon=2, noise=0.06)
    with pytest.raises(InputError, match="another problem"):
        Advisor(other.problem, store)
    assert store.head().seq == entries


def test_new_guards_are_logged_and_old_ones_are_not_written_again(world):
    store = MemoryStore()
    Advisor(world.problem, store)
    Advisor(world.problem, store)
    assert store.head().seq == 1
    Advisor(world.problem, store, guards=Guards(margin_share=0.5))
    assert [entry.kind for entry in store.read()] == ["configured", "configured"]
    assert Advisor(world.problem, store).replica.ledger.guards.margin_share == 0.5


def test_a_log_that_somebody_else_wrote_is_refused(world):
    from tether.live.log.chain import Draft

    store = MemoryStore()
    store.append([Draft("note", {"hello": 1})])
    with pytest.raises(InputError, match="not written by an Advisor"):
        Advisor(world.problem, store)


def test_a_problem_that_changed_behind_the_log_is_noticed():
    """Before anything is replayed."""
    world, _ = world_and_streams(3, horizon=2)
    store = MemoryStore()
    Plant(world.true_gamma).play(live_advisor(world.problem, store), 6, horizon=2)
    told = {
        name: getattr(world.problem, name) for name in ("horizon", "threshold", "noise", "gamma_norm", "confidence")
    }
    fewer = Problem.from_rays(
        phi_0=world.phi_0[:1],
        endpoints=world.endpoints[:1],
        **stated(baseline_cost_error=0.0, baseline_cost=world.problem.look_up(0).baseline_cost, **told),
    )
    with pytest.raises(InputError, match="another problem: its listed states"):
        Advisor(fewer, store)


def test_criteria_are_not_part_of_the_log(world):
    store = MemoryStore()
    Advisor(world.problem, store)
    assert Advisor(world.problem, store, criteria=Criteria(outcomes=7)).criteria.outcomes == 7
    assert store.head().seq == 1
    assert np.isfinite(Advisor(world.problem, store).status().certified)
