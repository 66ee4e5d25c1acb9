"""The hub: requests of one turn of the loop share one write, and none suffers for another."""

import asyncio

import pytest
from service_app import new_advisor

from tether.errors import InputError
from tether.service.hub import Hub
from tether.service.models import DecisionRequest


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
        advisor._store = counting = Counting(advisor.store)
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


def test_a_request_that_cannot_be_used_harms_no_other_of_its_turn():
    async def work(hub, store):
        return await asyncio.gather(ask(hub), ask(hub, state="nowhere"), ask(hub), return_exceptions=True)

    (one, bad, two), decisions, advisor = at_the_hub(work)
    assert isinstance(bad, InputError) and one.decision.logged and two.decision.logged
    assert len(decisions) == 2 and advisor._in_flight == 0


def test_a_caller_who_hangs_up_before_its_turn_ends_gets_nothing_and_harms_nobody():
    async def work(hub, store):
        gone, bad, there = ask(hub), ask(hub, state="nowhere"), ask(hub)
        await asyncio.sleep(0)  # they have asked, nothing is handed over yet
        gone.cancel()
        bad.cancel()
        return await there

    there, decisions, advisor = at_the_hub(work)
    assert there.decision.logged and [entry.body["decision_id"] for entry in decisions] == [there.decision.id]
    assert advisor._in_flight == 0


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
    assert [entry.body["decision_id"] for entry in decisions] == [again.decision.id]
    assert advisor._in_flight == 0 and advisor.status().decisions == 1
