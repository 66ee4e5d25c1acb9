"""The client's door: what cannot be sent is refused in words, numpy is taken, and a stranger's answer is no answer."""

import httpx
import numpy as np
import pytest
from service_app import WORLD, new_advisor, serving, tokens_of_every_kind

from tether.errors import InputError, TetherError
from tether.service.client import Client, ServiceError, action_of

SECRET = "tether_0123456789"


def answering(answer, **more):
    """A client of something that always gives this answer, and the requests that it has had."""
    asked = []

    def handle(request):
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = Client("http://service.test", SECRET, pause=0.001, **more)
    client._http._transport = httpx.MockTransport(handle)
    return client, asked


def test_a_token_read_from_a_file_may_end_in_a_newline(tmp_path):
    headers = tokens_of_every_kind(tmp_path)
    read_from_file = headers["read"].removeprefix("Bearer ") + "\r\n"
    with (
        serving(new_advisor(), tokens="tokens.json", folder=tmp_path) as http,
        Client(str(http.base_url), read_from_file) as client,
    ):
        assert client.status()["mode"] == "live"


@pytest.mark.parametrize(
    "token",
    [
        "",
        " \n",
        f"{SECRET}\n{SECRET}",
        f"Bearer {SECRET}",
        f"{SECRET}é",
        f"{SECRET}\x00",
        f"{SECRET}\udc80",
        b"tether_",
    ],
)
def test_a_token_that_cannot_be_one_is_refused_without_being_quoted(token):
    with pytest.raises(InputError, match="the token must be") as refused:
        Client("http://service.test", token)
    assert "tether_" not in str(refused.value) and refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "localhost:8080", "ftp://h", "http://", "http://h:port", "http://h:99999", "", None]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(url):
    with pytest.raises(InputError, match=r"http://127.0.0.1:8080"):
        Client(url)


def test_a_token_in_the_place_of_the_address_is_not_quoted():
    with pytest.raises(InputError) as refused:
        Client(SECRET, "http://service.test")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "error",
    [
        httpx.LocalProtocolError(f"Illegal header value b'Bearer {SECRET}'"),
        httpx.UnsupportedProtocol(f"Bearer {SECRET}"),
        httpx.InvalidURL(f"Bearer {SECRET}"),
        UnicodeError("label too long"),  # a socket's, for the name of a host
    ],
)
def test_what_can_never_be_sent_is_tried_once_and_no_header_is_quoted(error):
    client, asked = answering(error)
    with client, pytest.raises(ServiceError, match="cannot be sent") as refused:
        client.status()
    assert len(asked) == 1 and SECRET not in str(refused.value) and refused.value.__suppress_context__


def test_an_answer_that_breaks_off_is_asked_for_again():
    client, asked = answering(httpx.DecodingError("not gzip"), retries=2)
    with client, pytest.raises(ServiceError, match=r"no answer from http://service.test"):
        client.status()
    assert len(asked) == 3


def test_a_password_in_the_address_stays_out_of_the_words():
    client = Client("http://me:hidden@service.test/tether", retries=0)
    client._http._transport = httpx.MockTransport(lambda request: (_ for _ in ()).throw(httpx.ConnectError("down")))
    with client, pytest.raises(ServiceError, match=r"http://service.test/tether") as gone:
        client.status()
    assert "hidden" not in str(gone.value)


@pytest.mark.parametrize("key", ["a\nb", " a ", "a ", "", "schlüssel", "\x7f", 4711, b"a"])
def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent(key):
    client, asked = answering(httpx.Response(200))
    with client, pytest.raises(InputError, match="key"):
        client.decide(0, key=key)
    assert not asked


def test_keys_of_ones_own_are_taken():
    with serving(new_advisor()) as http, Client(str(http.base_url)) as client:
        made = [client.decide(0, key="day 7, 10:15") for _ in "ab"]
    assert made[0].id == made[1].id


FOREIGN = [
    httpx.Response(200, html="<html>please log in</html>"),
    httpx.Response(200, json=["mode"]),
    httpx.Response(200, json={"hello": "world"}),
    httpx.Response(200, content=b"\xff\xfe\x00"),
    httpx.Response(200, content=b"[" * 200_000),
    httpx.Response(200),
]
CALLS = {
    "decide": lambda client: client.decide(0),
    "record": lambda client: client.record("id", 0.5, 0.2),
    "status": lambda client: client.status(),
    "stop": lambda client: client.stop("why"),
    "resume": lambda client: client.resume("why"),
    "reset_alarm": lambda client: client.reset_alarm("why"),
    "set_mode": lambda client: client.set_mode("shadow", "why"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", FOREIGN, ids=["html", "list", "object", "bytes", "deep", "empty"])
def test_an_answer_that_is_not_tethers_is_an_error_and_never_a_success(call, answer):
    client, asked = answering(answer)
    with client, pytest.raises(ServiceError, match="not Tether's") as refused:
        CALLS[call](client)
    assert refused.value.status == 200 and len(asked) == 1


def test_a_refusal_of_a_stranger_is_in_words_too():
    client, _ = answering(httpx.Response(409, json={"unmet": 5}))
    with client, pytest.raises(ServiceError, match="409") as refused:
        client.set_mode("live", "now")
    assert refused.value.unmet == ()


def nested():
    inner = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("reward", {"reward": float("nan")}),
        ("reward", {"reward": np.float32("inf")}),
        ("reward", {"reward": 1j}),
        ("cost", {"cost": [0.1, float("nan")]}),
        ("cost", {"cost": np.array([np.inf])}),
        ("next_state", {"next_state": {1, 2}}),
        ("next_state", {"next_state": {(1, 2): 3}}),
        ("next_state", {"next_state": "\udc80"}),
        ("next_state", {"next_state": nested()}),
        ("next_state", {"next_state": 10**5000}),
        ("applied", {"applied": object()}),
    ],
)
def test_what_json_does_not_know_is_refused_by_name_before_anything_is_sent(field, told):
    client, asked = answering(httpx.Response(200))
    with client, pytest.raises(InputError, match=f"^{field}.* cannot be sent"):
        client.record("id", **{"reward": 0.5, "cost": 0.2, **told})
    assert not asked


def test_the_value_that_is_no_number_is_named():
    client, _ = answering(httpx.Response(200))
    with client, pytest.raises(TetherError, match=r"^reward = nan cannot be sent"):
        client.record("id", float("nan"), 0.2)


def test_numpys_numbers_and_arrays_are_taken_like_pythons():
    advisor = new_advisor()
    with serving(advisor) as http, Client(str(http.base_url)) as client:
        made = client.decide(np.int64(1), np.int32(0), np.int64(7), observed_at=np.float64(1.0))
        assert made.episode == 7
        feature = np.array(made.certificate["feature"])
        told = client.record(made.id, np.float32(0.5), np.array([0.25], dtype=np.float32), np.uint8(1), feature)
        assert not told.repeated and client.record(made.id, 0.5, 0.25, 1, feature.tolist()).repeated
        for cost in (np.float16(0.25), np.longdouble(0.25), np.array(0.25)):
            assert not client.record(client.decide(0).id, 0.5, cost).repeated
    assert advisor.status().outcomes == 4


def test_an_array_as_state_arrives_as_a_list():
    client, asked = answering(httpx.Response(503, json={}), retries=0)
    with client, pytest.raises(ServiceError):
        client.decide(np.array([[1, 2], [3, 4]]))
    assert asked[0].headers["content-type"] == "application/json" and b'"state":[[1,2],[3,4]]' in asked[0].content


def test_the_clients_own_actions_can_be_reported_as_applied():
    advisor = new_advisor(mode="shadow")
    with serving(advisor) as http, Client(str(http.base_url)) as client:
        for _ in range(30):
            made = client.decide(0)
            cost = float(WORLD.true_gamma[0, 0] @ made.certificate["feature"])
            assert not client.record(made.id, 0.5, cost, applied=made.action).repeated
        made = client.decide(0)
        assert made.proposed != made.action
        assert not client.record(made.id, 0.5, 0.2, applied=made.proposed).repeated
        made = client.decide(0)
        assert not client.record(made.id, 0.5, 0.2, applied=action_of(made)).repeated


ALLOW_MORE = {
    "set_mode": lambda client: client.set_mode("live", "why"),
    "resume": lambda client: client.resume("why"),
    "reset_alarm": lambda client: client.reset_alarm("why"),
}


@pytest.mark.parametrize("name", ALLOW_MORE)
def test_what_may_allow_more_is_not_sent_again_by_itself(name):
    """It may have taken effect; sent again it could release a stop that somebody has ordered in between."""
    for answer in (httpx.ReadTimeout("late"), httpx.Response(503, json={"detail": "no log"})):
        client, asked = answering(answer)
        with pytest.raises(ServiceError):
            ALLOW_MORE[name](client)
        assert len(asked) == 1
    client, asked = answering(httpx.ConnectError("not there yet"))
    with pytest.raises(ServiceError):
        ALLOW_MORE[name](client)
    assert len(asked) > 1, "what never arrived may be sent again"


def test_a_stop_is_sent_until_it_is_answered():
    client, asked = answering(httpx.ReadTimeout("late"))
    with pytest.raises(ServiceError):
        client.stop("smoke")
    assert len(asked) > 1
