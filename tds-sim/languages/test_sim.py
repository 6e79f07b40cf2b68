import json
import os
import subprocess

import pytest
import requests


@pytest.fixture(scope="session")
def sim():
    program = os.environ.get("TDS_SIM", "tds-sim")
    process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
    yield json.loads(process.stdout.readline())
    process.terminate()
    process.wait()


@pytest.fixture(autouse=True)
def fresh(sim):
    requests.post(sim["admin_url"] + "/reset").raise_for_status()


def token(sim):
    url = sim["auth_url"] + "/auth/realms/ServiceConnect/protocol/openid-connect/token"
    form = {"grant_type": "client_credentials"}
    reply = requests.post(url, form | {name: sim[name] for name in ("client_id", "client_secret")})
    return reply.json()["access_token"]


def get(sim, token):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.get(sim["base_url"] + "/v1/live/bus", headers=headers, timeout=5)


def control(sim, path, **fields):
    requests.post(sim["admin_url"] + path, json=fields).raise_for_status()


def test_each_error_and_what_the_service_saw(sim):
    good = token(sim)
    assert get(sim, good).json()["name"] == "bus"
    assert get(sim, None).json() == {"message": "no Authorization header found"}
    assert get(sim, "wrong").json() == {"message": "invalid token"}
    control(sim, "/roles", role="none")
    assert "Missing required realm role" in get(sim, token(sim)).text

    for setting, status in [({"connections": 0}, 416), ({"rate": 0}, 423), ({"quota": "0/60s"}, 429)]:
        control(sim, "/set", **setting)
        assert get(sim, good).status_code == status
        control(sim, "/reset", part="settings")

    control(sim, "/faults", fault="503@/v1/live/*")
    assert get(sim, good).status_code == 503
    control(sim, "/faults", fault="reset-body")
    with pytest.raises(requests.RequestException):
        get(sim, good)

    seen = requests.get(sim["admin_url"] + "/ledger", {"path": "/v1/live/bus", "wait": 9}).json()
    assert seen["summary"]["token_posts"] == 2
    statuses = [call["status"] for call in seen["arrivals"]]
    assert statuses == [200, 401, 401, 401, 416, 423, 429, 503, 200]
    assert seen["arrivals"][0]["headers"]["authorization"] == "Bearer ***"
