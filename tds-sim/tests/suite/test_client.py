"""Thirty tests that a stranger would write for a client, against one process of the simulator.

The client is `requests` with nothing around it. `.ci/suites` runs them, and refuses more than ten seconds.
"""

import json
import os
import subprocess
import threading
import time

import pytest
import requests

REALM = "/auth/realms/ServiceConnect"


class Sim:
    def __init__(self, line):
        self.__dict__.update(json.loads(line))
        self.http = requests.Session()

    def control(self, path, **fields):
        done = requests.post(self.admin_url + path, json=fields)
        assert done.status_code == 200, done.text
        return done

    def reset(self, *parts):
        self.control("/reset", part=list(parts))

    def token(self, **other):
        form = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        url = self.auth_url + REALM + "/protocol/openid-connect/token"
        return self.http.post(url, form | other)

    def get(self, path, token=None, **headers):
        if token:
            headers["Authorization"] = "Bearer " + token
        return self.http.get(self.base_url + path, headers=headers, timeout=5)

    def ledger(self, **query):
        return requests.get(self.admin_url + "/ledger", query).json()


@pytest.fixture(scope="session")
def process():
    program = [os.environ.get("TDS_SIM", "tds-sim"), "--live-every", "1s"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    yield Sim(process.stdout.readline())
    process.terminate()
    process.wait()


@pytest.fixture
def sim(process):
    process.reset()
    return process


@pytest.fixture
def token(sim):
    return sim.token().json()["access_token"]


def test_it_is_ready(sim):
    assert requests.get(sim.admin_url + "/ready").text == "ready\n"


def test_a_token_is_good_for_a_day(sim):
    assert sim.token().json()["expires_in"] == 86400


def test_the_lifetime_of_tokens_can_be_set(sim):
    sim.control("/set", **{"expires-in": 7})
    assert sim.token().json()["expires_in"] == 7


def test_the_lifetime_is_a_day_again_in_the_next_test(sim):
    assert sim.token().json()["expires_in"] == 86400


def test_a_wrong_secret_is_refused(sim):
    assert sim.token(client_secret="wrong").json()["error"] == "unauthorized_client"


def test_a_rotated_secret_replaces_the_old_one(sim):
    secret = json.loads(sim.control("/rotate-secret").text)["client_secret"]
    assert sim.token().status_code == 401
    assert sim.token(client_secret=secret).status_code == 200


def test_a_disabled_key_gets_no_token(sim):
    sim.control("/disable-key")
    assert sim.token().json()["error"] == "invalid_client"


def test_token_requests_are_counted(sim):
    sim.token()
    sim.token(client_secret="wrong")
    summary = requests.get(sim.admin_url + "/summary").json()
    assert (summary["token_posts"], summary["tokens_issued"]) == (2, 1)


def test_a_token_endpoint_that_is_down(sim):
    sim.control("/faults", **{"token-fault": "down"})
    with pytest.raises(requests.ConnectionError):
        sim.token()


def test_a_token_endpoint_with_a_page(sim):
    sim.control("/faults", **{"token-fault": "html"})
    with pytest.raises(requests.JSONDecodeError):
        sim.token().json()


def test_discovery_leads_to_the_token_endpoint(sim):
    issuer = sim.auth_url + REALM
    found = sim.http.get(issuer + "/.well-known/openid-configuration").json()
    assert found["issuer"] == issuer
    assert sim.http.get(found["jwks_uri"]).json()["keys"][0]["alg"] == "ES256"


def test_introspection_knows_an_active_token(sim, token):
    url = sim.auth_url + REALM + "/protocol/openid-connect/token/introspect"
    form = {"token": token, "client_id": sim.client_id, "client_secret": sim.client_secret}
    assert sim.http.post(url, form).json()["active"] is True
    sim.control("/revoke-all")
    assert sim.http.post(url, form).json() == {"active": False}


def test_data_with_a_token(sim, token):
    assert sim.get("/v1/live/bus", token).json()["status"] == "on time"


@pytest.mark.parametrize("token, says", [(None, "no Authorization header"), ("wrong", "invalid token")])
def test_data_without_a_good_token(sim, token, says):
    answer = sim.get("/v1/live/bus", token)
    assert answer.status_code == 401
    assert says in answer.json()["message"]


def test_a_token_without_the_role(sim):
    sim.control("/roles", role=["history"])
    token = sim.token().json()["access_token"]
    assert "role" in sim.get("/v1/live/bus", token).text
    assert sim.get("/v1/history/bus?bytes=10", token).status_code == 200


def test_the_51st_call_of_a_second(sim, token):
    statuses = [sim.get("/v1/live/bus", token).status_code for _ in range(60)]
    assert statuses.count(423) >= 1
    assert sim.ledger(status=423)["arrivals"][0]["status"] == 423


def test_the_rate_counts_from_zero_in_the_next_test(sim, token):
    assert sim.get("/v1/live/bus", token).status_code == 200


def test_more_connections_than_allowed(sim, token):
    sim.control("/set", connections=2)
    calls = [requests.Session() for _ in range(3)]
    url, headers = sim.base_url + "/v1/live/bus", {"Authorization": "Bearer " + token}
    statuses = [call.get(url, headers=headers).status_code for call in calls]
    assert 416 in statuses
    for call in calls:
        call.close()


def test_a_quota_with_retry_after(sim, token):
    sim.control("/set", quota="1/60s", **{"retry-after": True})
    assert sim.get("/v1/live/bus", token).status_code == 200
    refused = sim.get("/v1/live/bus", token)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60


def test_every_other_call_fails(sim, token):
    sim.control("/faults", fault="503@every:2")
    assert [sim.get("/v1/live/a", token).status_code for _ in range(4)] == [200, 503, 200, 503]


def test_only_one_path_fails(sim, token):
    sim.control("/faults", fault="502@/v1/live/tram")
    assert sim.get("/v1/live/bus", token).status_code == 200
    assert sim.get("/v1/live/tram", token).status_code == 502


def test_a_body_that_breaks_off_is_resumed(sim, token):
    path = "/v1/history/a?bytes=1000"
    # A range counts the bytes that are sent, so that what is resumed must not be compressed.
    plain = {"Accept-Encoding": "identity"}
    whole = sim.get(path, token, **plain)
    sim.control("/faults", fault="truncate")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        sim.get(path, token, **plain)
    sim.control("/faults")
    rest = sim.get(path, token, Range="bytes=500-", **{"If-Range": whole.headers["etag"]}, **plain)
    assert (rest.status_code, rest.content) == (206, whole.content[500:])


def test_a_slow_answer_times_out(sim, token):
    sim.control("/faults", **{"delay-head": "2s"})
    with pytest.raises(requests.Timeout):
        requests.get(sim.base_url + "/v1/live/a", headers={"Authorization": "Bearer " + token}, timeout=0.1)
    sim.control("/faults")


def test_a_live_resource_changes(sim, token):
    old = sim.get("/v1/live/bus", token)
    known = {"If-None-Match": old.headers["etag"]}
    deadline = time.monotonic() + 3
    while sim.get("/v1/live/bus", token, **known).status_code == 304 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sim.get("/v1/live/bus", token).text != old.text


def test_an_answer_of_my_own(sim, token):
    mine = {"status": 201, "headers": {"X-Mine": "yes"}, "body": {"stops": []}}
    requests.put(sim.admin_url + "/stub/v2/stops", json=mine).raise_for_status()
    answer = sim.get("/v2/stops?near=me", token)
    assert (answer.status_code, answer.headers["x-mine"], answer.json()) == (201, "yes", {"stops": []})


def test_my_answer_is_gone_in_the_next_test(sim, token):
    assert sim.get("/v2/stops", token).status_code == 404


def test_the_ledger_has_what_my_client_sent(sim, token):
    sim.get("/v1/live/bus?line=1", token, **{"If-None-Match": '"a"'})
    call = sim.ledger(path="/v1/live/bus")["arrivals"][0]
    assert (call["method"], call["target"], call["token"]) == ("GET", "/v1/live/bus?line=1", 1)
    assert call["headers"]["if-none-match"] == '"a"'
    assert call["headers"]["authorization"] == "Bearer ***"


def test_waiting_for_calls_in_the_background(sim, token):
    threading.Timer(0.1, sim.get, ("/v1/live/later", token)).start()
    assert len(sim.ledger(path="/v1/live/later", wait=1, timeout="3s")["arrivals"]) == 1


def test_a_typo_is_an_error(sim):
    refused = requests.post(sim.admin_url + "/set", json={"qouta": "1/60s"})
    assert refused.status_code == 400
    assert "quota" in refused.text
