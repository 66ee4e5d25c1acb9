"""The client: typed answers, and repeats that change nothing."""

import httpx
import pytest
from service_app import WORLD, new_advisor, serving, tokens_of_every_kind

from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria
from tether.records import StarAction
from tether.service.client import Client, ServiceError, action_of


class Lossy(httpx.HTTPTransport):
    """The network at its worst: so many answers get lost after the service has done its work."""

    def __init__(self, lost):
        super().__init__()
        self.lost, self.sent = lost, 0

    def handle_request(self, request):
        self.sent += 1
        response = super().handle_request(request)
        if self.lost:
            self.lost -= 1
            response.read()
            raise httpx.ReadError("the line went dead", request=request)
        return response


def client_of(http, lost=0, **more):
    client = Client(str(http.base_url), pause=0.01, **more)
    client._http._transport = line = Lossy(lost)
    return client, line


def test_a_lost_answer_is_asked_for_again_and_nothing_happens_twice():
    advisor = new_advisor()
    with serving(advisor) as http:
        client, line = client_of(http, lost=2)
        with client:
            made = client.decide(1, episode="e")
            assert line.sent == 3 and advisor.status().decisions == 1 and made.logged
            line.lost = 1
            told = client.record(made.id, 0.5, 0.2)
            assert told.repeated and advisor.status().outcomes == 1


def test_it_gives_up_in_words_after_so_many_tries():
    with serving(new_advisor()) as http:
        client, line = client_of(http, lost=9, retries=2)
        with client, pytest.raises(ServiceError, match="no answer") as gone:
            client.status()
        assert line.sent == 3 and gone.value.status == 0


def test_what_is_refused_is_not_sent_again():
    with serving(new_advisor(mode="shadow", criteria=Criteria(outcomes=5))) as http:
        client, line = client_of(http)
        with client:
            with pytest.raises(ServiceError) as refused:
                client.set_mode("live", "now")
            assert refused.value.status == 409 and refused.value.unmet and line.sent == 1
            with pytest.raises(ServiceError, match="nowhere") as unknown:
                client.decide("nowhere")
            assert unknown.value.status == 400 and line.sent == 2


def test_a_decision_that_was_not_logged_is_an_answer_and_not_an_error():
    class Broken(MemoryStore):
        broken = False

        def append(self, drafts):
            if self.broken:
                self._closed = True
            return super().append(drafts)

    store = Broken()
    with serving(new_advisor(store)) as http:
        client, line = client_of(http)
        store.broken = True
        with client:
            made = client.decide(0)
            assert not made.logged and made.is_baseline and action_of(made) == StarAction(-1, 0.0) and line.sent == 1


def test_operators_have_their_calls_and_actions_come_as_tethers_own(tmp_path):
    headers = tokens_of_every_kind(tmp_path)
    with serving(new_advisor(), tokens="tokens.json", folder=tmp_path) as http:

        def as_a(role):
            return Client(str(http.base_url), headers[role].removeprefix("Bearer "))

        with as_a("decide") as asker, as_a("record") as reporter, as_a("admin") as admin, as_a("read") as reader:
            for _ in range(60):
                made = asker.decide(0)
                cost = float(WORLD.true_gamma[0, 0] @ made.certificate["feature"])
                reporter.record(made.id, 0.5, cost, applied=action_of(made))
            action = action_of(asker.decide(0))
            assert isinstance(action, StarAction) and action.ray >= 0 and 0.0 < action.length <= 1.0
            with pytest.raises(ServiceError) as refused:
                asker.stop("I may not")
            assert refused.value.status == 403
            with pytest.raises(ServiceError) as refused:
                admin.stop("visitors")  # done, but the answer to an order is the status: an admin may see it
                asker.status()
            assert refused.value.status == 403 and asker.decide(0).reason == "stopped"
            assert reader.status()["stopped"]["by"] == "admin"
            admin.resume("gone")
            admin.reset_alarm("nothing was on")
            assert admin.set_mode("shadow", "back")["mode"] == "shadow"
