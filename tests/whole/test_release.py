"""`gym-supervise release` on a running service: live, gone, busy and unknown sessions."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from whole.harness import Connection, Service, eventually


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with three workers for the tests of this file."""
    service = Service(tmp_path_factory.mktemp("release"), "whole.apps:gym", workers=3)
    service.start()
    yield service
    assert service.stop() == 0, service.log.read_text()
    assert service.cleanup() == [], service.log.read_text()


class Session:
    """A started session and a connection that speaks for it."""

    def __init__(self, service: Service) -> None:
        self.connection: Connection = service.connect()
        status, headers, body = self.connection.ask("POST", "/seed_session", body={"n": 7})
        assert status == 200
        self.headers = {"cookie": headers["set-cookie"].split(";")[0]}
        self.id: str = json.loads(body)["session"]
        self.owner: int = json.loads(body)["pid"]

    def state(self) -> Any:
        """What the app knows of it."""
        status, _, body = self.connection.ask("POST", "/show", headers=self.headers)
        assert status == 200
        return json.loads(body)["state"]


def claim_of(service: Service, session: str) -> Any:
    """Its claim, as the table has it."""
    with service.segment() as segment:
        return segment.table.lookup(session.encode())


def digest_of(service: Service, session: str) -> str:
    """As `claims` shows it."""
    with service.segment() as segment:
        return segment.table.digest(session.encode()).hex()


def open_upload(session: Session) -> Connection:
    """A request of the session that is in flight until its upload ends."""
    http = session.connection.http
    http.putrequest("POST", "/count")
    http.putheader("transfer-encoding", "chunked")
    http.putheader("cookie", session.headers["cookie"])
    http.endheaders()
    http.send(b"5\r\nhello\r\n")
    return session.connection


def end_upload(connection: Connection) -> int:
    """Its status."""
    connection.http.send(b"0\r\n\r\n")
    reply = connection.http.getresponse()
    reply.read()
    return reply.status


@pytest.mark.parametrize("by", ["id", "digest"])
def test_a_live_session_is_released(gym: Service, by: str) -> None:
    """By its id or its digest: the claim is gone, the count is down, and the id starts anew, wherever it lands."""
    session = Session(gym)
    assert session.state() == {"n": 7}
    before = sum(row.sessions for row in gym.rows().values())
    name = session.id if by == "id" else digest_of(gym, session.id)
    done = gym.run("release", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"session {session.id[:8]}... of server app: worker" in done.stdout
    assert session.id not in done.stdout
    assert claim_of(gym, session.id) is None
    assert sum(row.sessions for row in gym.rows().values()) == before - 1
    again = gym.run("release", name)
    assert again.returncode == 1
    assert "not released: nobody claims it" in again.stderr
    assert session.connection.ask("POST", "/show", headers=session.headers)[0] == 200
    assert claim_of(gym, session.id).state == "live"
    assert "released on request: session" in gym.log.read_text()


def test_a_session_in_use_stays_unless_one_waits_for_it(gym: Service) -> None:
    """No claim ends under a request: it is refused, or ends with the last of them."""
    session = Session(gym)
    owner = session.owner
    eventually(lambda: gym.rows()[owner].in_flight == 0, "the requests before it to be over")
    upload = open_upload(session)
    eventually(lambda: gym.rows()[owner].in_flight > 0, "the upload with its owner")
    refused = eventually(
        lambda: done if (done := gym.run("release", session.id)).returncode else None, "a refusal while it is in flight"
    )
    assert "1 request of it in flight on worker" in refused.stderr
    assert "--when-idle ends it with the last of them" in refused.stderr
    assert claim_of(gym, session.id).state == "live"
    done = gym.run("release", session.id, "--when-idle")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gives it up with the last of 1 request in flight" in done.stdout
    assert claim_of(gym, session.id).state == "live"
    assert end_upload(upload) == 200
    eventually(lambda: claim_of(gym, session.id) is None, "the claim to end with its last request")


def test_a_gone_session_is_retired(gym: Service) -> None:
    """The record of a dead worker: by the supervisor itself; after that the id is no 410 any more."""
    session = Session(gym)
    os.kill(session.owner, signal.SIGKILL)
    eventually(lambda: claim_of(gym, session.id).state == "gone", "the claim to be gone")
    gym.wait_ready()
    connection = gym.connect()
    assert connection.ask("POST", "/show", headers=session.headers)[0] == 410
    done = gym.run("release", session.id, "--server", "app")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the record that dead worker" in done.stdout
    assert connection.ask("POST", "/show", headers=session.headers)[0] == 200


def test_what_cannot_be_meant_is_a_usage_error(gym: Service) -> None:
    """A server that is none names those that are; an id that only looks like a digest is nobody's."""
    done = gym.run("release", "x", "--server", "nope")
    assert done.returncode == 2
    assert "server: found 'nope', expected one of app" in done.stderr
    for name, status in (("0" * 32, 1), ("\N{GREEK SMALL LETTER ALPHA}" * 32, 1), ("", 2)):
        assert gym.run("release", name).returncode == status
