"""The hub: requests of one turn of the loop share one write, and none suffers for another."""

import asyncio

import pytest
from service_app import new_advisor, serving

from tether.errors import InputError
from tether.live import batches
from tether.live.answers import LiveDecision
from tether.live.judge import judge
from tether.live.log.chain import Head
from tether.service.hub import Hub
from tether.service.models import DecisionRequest
from tether.service.views import LogPoll


class Counting:
    """A store that counts its writes."""

    def __init__(self, inner):
        self.inner, self.sizes = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def append(self, drafts):
        self.sizes.append(len(drafts))
        return self.inner.append(drafts)


def at_the_hub(work):
    """What the coroutine `work(hub, counting store)` returns, the decisions in the log then, and the advisor."""

    async def run():
        advisor = new_advisor()
        advisor.store = counting = Counting(advisor.store)
        hub = Hub(advisor, waiting=100, seconds=5.0)
        try:
            answer = await work(hub, counting)
            return answer, [entry for entry in counting.inner.read() if entry.kind == "decision"], advisor
        finally:
            await hub.close()

    return asyncio.run(run())


def ask(hub, state=0, key=None):
    return asyncio.ensure_future(hub.decide(DecisionRequest(state=state), key))


def test_requests_of_one_turn_share_one_write():
    async def work(hub, store):
        await asyncio.gather(*(ask(hub) for _ in range(20)))
        return store.sizes

    sizes, decisions, _ = at_the_hub(work)
    assert sizes == [20] and len(decisions) == 20


@pytest.mark.parametrize(("longest", "batches"), [(60.0, [10]), (0.0, [2, 2, 2, 2, 2])])
def test_requests_are_gathered_while_more_arrive_but_not_for_long(monkeypatch, longest, batches):
    """Two more in each of five turns of the loop."""
    monkeypatch.setattr("tether.service.hub.LONGEST_TURN", longest)

    async def work(hub, store):
        prepare, sizes, asked = hub.advisor.prepare, [], []

        def counted(requests):
            sizes.append(len(batch := list(requests)))
            return prepare(batch)

        monkeypatch.setattr(hub.advisor, "prepare", counted)
        for _ in range(5):
            asked += [ask(hub), ask(hub)]
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        return sizes

    sizes, decisions, _ = at_the_hub(work)
    assert sizes == batches and len(decisions) == 10


def test_a_request_that_cannot_be_used_harms_no_other_of_its_turn():
    async def work(hub, store):
        return await asyncio.gather(ask(hub), ask(hub, state="nowhere"), ask(hub), return_exceptions=True)

    (one, bad, two), decisions, advisor = at_the_hub(work)
    assert isinstance(bad, InputError) and one.logged and two.logged
    assert len(decisions) == 2 and advisor._follower.in_flight == 0


def test_a_caller_who_hangs_up_before_its_turn_ends_gets_nothing_and_harms_nobody():
    async def work(hub, store):
        gone, bad, there = ask(hub), ask(hub, state="nowhere"), ask(hub)
        await asyncio.sleep(0)  # they have asked, nothing is handed over yet
        gone.cancel()
        bad.cancel()
        return await there

    there, decisions, advisor = at_the_hub(work)
    assert there.logged and [entry.body["decision_id"] for entry in decisions] == [there.id]
    assert advisor._follower.in_flight == 0


def test_a_caller_who_hangs_up_later_leaves_a_whole_decision_behind():
    async def work(hub, store):
        gone = ask(hub, key="again")
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # handed over
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await ask(hub, key="again")

    again, decisions, advisor = at_the_hub(work)
    assert [entry.body["decision_id"] for entry in decisions] == [again.id]
    assert advisor._follower.in_flight == 0 and advisor.status().decisions == 1


class Panic(BaseException):
    """What an extension in another language may raise."""


@pytest.mark.parametrize("error", [StopIteration("odd"), Panic("odd"), GeneratorExit()])
def test_whatever_a_first_half_raises_the_hub_goes_on(error, monkeypatch):
    async def work(hub, store):
        def broken(replica, question):
            if question.state == 1:
                raise error
            return judge(replica, question)

        monkeypatch.setattr(batches, "judge", broken)
        first = await asyncio.gather(ask(hub), ask(hub, state=1), ask(hub), return_exceptions=True)
        return [*first, await ask(hub)]

    (one, bad, two, later), decisions, _ = at_the_hub(work)
    assert isinstance(bad, RuntimeError) and all(each.logged for each in (one, two, later))
    assert len(decisions) == 3


@pytest.mark.parametrize("error", [StopIteration("odd"), Panic("odd"), ValueError("odd")])
def test_whatever_a_second_half_raises_the_others_of_the_batch_are_answered(error, monkeypatch):
    made_of = LiveDecision.of

    async def work(hub, store):
        called = []

        def broken(*args):
            called.append(args)
            if len(called) == 2:
                raise error
            return made_of(*args)

        monkeypatch.setattr(LiveDecision, "of", broken)
        first = asyncio.gather(ask(hub), ask(hub), ask(hub), return_exceptions=True)
        return [*await asyncio.wait_for(first, 5.0), await ask(hub)]

    (one, bad, two, later), decisions, _ = at_the_hub(work)
    assert isinstance(bad, RuntimeError | ValueError)
    assert all(each.logged for each in (one, two, later)) and len(decisions) == 4


def test_the_status_is_computed_under_the_advisors_lock():
    """A hash that is computed while an outcome is being learned would be kept, and logged with the next decision."""
    advisor = new_advisor()
    learner, plain = advisor.replica.learner, advisor.replica.learner.model_hash

    def watched(step):
        assert advisor._follower.lock._is_owned()
        return plain(step)

    learner.model_hash = watched
    with serving(advisor) as client:
        assert client.post("/v1/decisions", json={"state": 0}).status_code == 200
        assert client.get("/v1/status").json()["model_hash"] == plain(0)


def test_a_poll_outlives_whatever_the_log_raises():
    class Broken:
        fails = 0

        def head(self):
            self.fails += 1
            if self.fails == 2:
                raise OSError("too many open files")
            return Head(self.fails, "")

    async def run():
        poll = LogPoll(Broken())
        grown = await poll.head_after(2, 5.0)
        await poll.close()
        return grown

    assert asyncio.run(run()) == 3
