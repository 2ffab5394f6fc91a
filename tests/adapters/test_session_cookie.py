"""The signed session cookie, beside the Starlette that is installed."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from typing import Any

import pytest
from adapters.helpers import CLEARED, NAME, OTHER, SID, At, call, cookie, reply, request, set_cookie, signed, steady
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import TimestampSigner
from starlette.middleware.sessions import SessionMiddleware

from server_adapters import cookies
from server_adapters.session_cookie import CookieSettings, SessionCookie

NOW = 1_780_000_000
AGE = 1000
DATA = st.dictionaries(
    st.text(max_size=6),
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.lists(st.text(max_size=3)),
    max_size=4,
)


class Clock:
    """Wall seconds that stand until they are set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def made(clock: Any = None, *, field: str = "session_id", **settings: Any) -> SessionCookie:
    """A session cookie whose clock stands."""
    settings = {"max_age": AGE, **settings}
    return SessionCookie(CookieSettings(NAME, NAME, **settings), field=field, server="test", clock=clock or Clock())


def starlette_session(raw: bytes, now: float = NOW) -> dict[str, Any] | None:
    """The session that SessionMiddleware gives an app for a Cookie header; None where it raises."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope["session"])

    middleware = SessionMiddleware(app, secret_key=NAME, session_cookie=NAME, max_age=AGE)
    middleware.signer = At(NAME, int(now))
    scope = {"type": "http", "headers": [(b"cookie", raw)]}
    try:
        asyncio.run(middleware(scope, None, None))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None
    return seen


VALUES = st.one_of(
    st.tuples(st.fixed_dictionaries({"session_id": st.sampled_from([SID, OTHER])}), st.integers(-5, 2 * AGE)).map(
        lambda drawn: signed(drawn[0], at=NOW - drawn[1])
    ),
    DATA.map(lambda data: signed(data, at=NOW - 1)),
    st.just(signed({"session_id": SID}, secret="another", at=NOW)),
    st.sampled_from(["", "null", "..", signed({"session_id": SID}, at=NOW)[:-1], signed(["no", "dict"], at=NOW)]),
    st.text(st.characters(max_codepoint=255, exclude_characters=";"), max_size=12),
)


@steady
@given(
    st.lists(st.tuples(st.sampled_from([NAME, f"{NAME} ", "SimpleAgent___a", ""]), VALUES, st.booleans()), max_size=4)
)
def test_router_and_app_see_the_same_session(drawn: list[tuple[str, str, bool]]) -> None:
    """Valid, expired, future, forged, quoted and doubled cookies, and other servers' beside them."""
    raw = "; ".join(f'{name}="{value}"' if quoted else f"{name}={value}" for name, value, quoted in drawn).encode(
        "latin-1"
    )
    session = made().session(raw)
    app_sees = starlette_session(raw)
    if app_sees is None:  # a signed payload that is no session: the app answers 500
        assert session is None
    else:
        assert session == app_sees.get("session_id")


@steady
@given(DATA, st.sampled_from([SID, OTHER]))
def test_what_is_put_in_is_taken_over(data: dict[str, Any], session: str) -> None:
    """The app's session holds what the client's cookie held, and the id."""
    data = {key: value for key, value in data.items() if key != "session_id"}
    head = request(cookies=f"a=1; {NAME}={signed(data, at=NOW)}".encode())
    raw = cookies.joined(made().put(head.headers, session)) or b""
    assert starlette_session(raw) == {**data, "session_id": session}
    assert cookies.parse(raw)["a"] == "1"


@pytest.mark.parametrize(
    "raw",
    [
        f"{NAME}={signed({'session_id': OTHER, 'basket': [1]}, at=NOW)}".encode(),
        f"{NAME}={signed({'basket': [1]}, at=NOW, secret='another')}".encode(),
        f"{NAME}={signed({'basket': [1]}, at=NOW - AGE - 1)}".encode(),
        f"{NAME}={signed(['basket'], at=NOW)}".encode(),
        f"{NAME}=junk".encode(),
    ],
)
def test_data_of_another_session_is_not_taken_over(raw: bytes) -> None:
    """Nor what is forged or too old: the new session has its id and nothing else."""
    put = cookies.joined(made().put([(b"cookie", raw)], SID)) or b""
    assert starlette_session(put) == {"session_id": SID}


def test_the_same_value_as_starlettes() -> None:
    """Byte for byte what SessionMiddleware would sign at the same second."""
    data = {"session_id": SID, "é": "ü"}
    expected = At(NAME, NOW).sign(b64encode(json.dumps(data).encode())).decode()
    assert made().sign(data) == expected


@pytest.mark.parametrize(
    ("age", "valid"), [(0, True), (-1, False), (AGE, True), (AGE + 0.99, True), (AGE + 1, False), (10 * AGE, False)]
)
def test_expiry_is_checked_on_every_hit(age: float, valid: bool) -> None:
    """A cookie read before is not valid for ever, nor invalid for ever when a clock was ahead."""
    clock = Clock(NOW)
    session_cookie = made(clock)
    raw = f"{NAME}={signed({'session_id': SID}, at=NOW)}".encode()
    for cached in (False, True):
        clock.now = NOW + age
        assert (session_cookie.session(raw) == SID) is valid, f"cached: {cached}"
        assert (session_cookie.payload(raw) is not None) is valid
        assert bool(starlette_session(raw, clock.now)) is valid
        clock.now = NOW
        assert session_cookie.session(raw) == SID


def test_without_a_max_age_a_cookie_stays_valid() -> None:
    """max_age null is Starlette's way to say so."""
    clock = Clock(NOW + 10 * AGE)
    assert made(clock, max_age=None).session(f"{NAME}={signed({'session_id': SID}, at=NOW)}".encode()) == SID


def test_a_cookie_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known Cookie header costs a look-up, whether it names a session or is a forgery."""
    checked = []
    unsign = TimestampSigner.unsign

    def counted(self: TimestampSigner, *args: Any, **kwargs: Any) -> Any:
        checked.append(args)
        return unsign(self, *args, **kwargs)

    monkeypatch.setattr(TimestampSigner, "unsign", counted)
    session_cookie = made(Clock())
    good = f"{NAME}={signed({'session_id': SID}, at=NOW)}".encode()
    for _ in range(5):
        assert session_cookie.session(good) == SID
        assert session_cookie.session(good[:-1]) is None
    assert len(checked) == 2
    seen = {
        session_cookie.read_reply(reply(200, f"{NAME}={signed({'session_id': SID}, at=NOW + s)}").headers)
        for s in range(5)
    }
    assert {one.session for one in seen if one is not None} == {SID}
    assert len(checked) == 3


@pytest.mark.parametrize(
    ("lines", "session", "expired"),
    [
        ([set_cookie({"session_id": SID})], SID, False),
        ([set_cookie({"session_id": SID}), set_cookie({"session_id": OTHER})], OTHER, False),
        ([set_cookie({"session_id": SID}), set_cookie({"session_id": OTHER}, name="SimpleAgent___a")], SID, False),
        ([CLEARED], None, True),
        ([set_cookie({"session_id": SID}), CLEARED], None, True),
        ([CLEARED, set_cookie({"session_id": SID})], SID, False),
        ([f"{NAME}={signed({'session_id': SID})}; Max-Age=0"], None, True),
        ([f"{NAME}={signed({'session_id': SID})}"], SID, False),
        ([f"{NAME}=null; path=/"], None, True),
        ([f"{NAME}="], None, True),
        ([set_cookie({"flash": "you are logged out"})], None, True),
        ([set_cookie({"session_id": ""})], None, True),
        ([set_cookie({"session_id": SID}, secret="another")], None, False),
        ([f"{NAME}=junk; path=/"], None, False),
    ],
)
def test_what_a_reply_does_with_the_cookie(lines: list[str], session: str | None, expired: bool) -> None:
    """It names an id, it takes the client's name for the session away, or it is not this cookie."""
    seen = made(Clock(), max_age=None).read_reply(reply(200, *lines).headers)
    assert seen is not None
    assert (seen.session, seen.expired) == (session, expired)


def test_a_reply_without_the_cookie_leaves_it_alone() -> None:
    """Also one whose cookie's name only starts the same."""
    assert made().read_reply(reply(200, f"{NAME}2=1", "other=1").headers) is None


def test_another_secret_than_the_apps_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Under a wrong secret every session would be lost in silence; the log says which key to set."""
    session_cookie = made()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            session_cookie.read_reply(reply(200, set_cookie({"session_id": SID}, secret="another")).headers)
    [record] = caplog.records
    assert "affinity.secret" in record.getMessage()
    assert "server test" in record.getMessage()


@pytest.mark.parametrize(
    ("given_cookie", "repeated"),
    [
        (f"a=1; {NAME}=VALUE; b=2", f"{NAME}=VALUE"),
        (f'{NAME}="VALUE"', f'{NAME}="VALUE"'),
        (f"{NAME}=old; {NAME}=VALUE", f"{NAME}=VALUE"),
        (f"{NAME}=junk", None),
        ("a=1", None),
        (None, None),
    ],
)
def test_the_cookie_is_repeated_as_it_came(given_cookie: str | None, repeated: str | None) -> None:
    """Byte for byte with its quotes and its old signature; nothing is repeated that names no session."""
    value = signed({"session_id": SID}, at=NOW)
    raw = None if given_cookie is None else given_cookie.replace("VALUE", value).encode()
    lines = made().repeated(raw)
    if repeated is None:
        assert lines == []
    else:
        [(name, line)] = lines
        assert name == b"set-cookie"
        assert line.decode().split("; ")[0] == repeated.replace("VALUE", value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_age": None},
        {"path": "/app", "same_site": "none", "https_only": True},
        {"domain": "example.org", "same_site": "strict"},
        {"https_only": True, "domain": "example.org", "partitioned": True},
    ],
)
def test_own_cookies_have_the_apps_attributes(settings: dict[str, Any]) -> None:
    """A browser deletes or replaces a cookie only when path and domain are the same."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["session"].pop("flash", None)
        if scope["path"] == "/out":
            scope["session"].clear()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    given_settings = {"max_age": AGE, **settings}
    middleware = SessionMiddleware(app, secret_key=NAME, session_cookie=NAME, **given_settings)
    raw = f"{NAME}={signed({'session_id': SID, 'flash': 1})}".encode()
    session_cookie = SessionCookie(CookieSettings(NAME, NAME, **given_settings), field="session_id")

    def lines(path: str) -> list[str]:
        _, headers, _ = call(middleware, request("GET", path, cookies=raw))
        return [value.decode().split(";", 1)[1].lower() for key, value in headers if key == b"set-cookie"]

    assert [line.decode().split(";", 1)[1].lower() for _, line in session_cookie.repeated(raw)] == lines("/")
    assert [line.decode().split(";", 1)[1].lower() for _, line in session_cookie.expired()] == lines("/out")


@steady
@given(st.binary(max_size=120))
def test_garbage_names_no_session(raw: bytes) -> None:
    """Nothing that a client or an app can write raises."""
    session_cookie = made()
    assert session_cookie.session(raw) is None
    assert session_cookie.session(f"{NAME}=".encode() + raw) is None
    session_cookie.read_reply([(b"set-cookie", f"{NAME}=".encode() + raw)])
    session_cookie.put([(b"cookie", raw)], SID)


@pytest.mark.parametrize("data", [b"\xff\xfe", b64encode(b"[" * 100_000), b64encode(b"\xff"), b"%%%", b""])
def test_a_signed_payload_that_is_no_session_is_none(data: bytes) -> None:
    """Only the app could have signed it, and it would fail on it; the router goes on."""
    raw = f"{NAME}=".encode() + At(NAME, NOW).sign(data)
    assert made().session(raw) is None


def test_a_session_without_the_field_has_no_id() -> None:
    """Its data is kept all the same when an id is put in."""
    assert made().session(cookie(None, basket=[1])) is None
