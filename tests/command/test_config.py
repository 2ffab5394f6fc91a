"""What a right config means: keys, defaults, paths, variables, places."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config import Affinity, Bind, Config, ServerConfig, load, locate
from supervisor.config.document import parse
from supervisor.errors import ConfigError

APP = "servers:\n  a:\n    app: m:app\n"
Write = Callable[[str], Path]


def test_the_smallest_config_has_the_documented_defaults(write: Write) -> None:
    """Every default of the design, from a file that gives only an app."""
    path = write(APP)
    config = load(path, {"XDG_RUNTIME_DIR": "/var"})
    assert config.model_dump() == {
        "name": "config",
        "runtime_dir": Path("/var/gym-supervise/config"),
        "servers": {
            "a": {
                "app": "m:app",
                "factory": False,
                "chdir": path.parent,
                "env": {},
                "bind": {"kind": "tcp", "host": "127.0.0.1", "port": 8000, "path": "", "fd": -1, "name": ""},
                "workers": 1,
                "placement": "least_sessions",
                "affinity": None,
                "claims": {"max_sessions": 50000, "gone_retention_seconds": None},
                "uvicorn": {"timeout_keep_alive": 30},
                "health": None,
                "boot_tries": 5,
                "timeouts": {
                    "boot_seconds": 120,
                    "stall_seconds": 60,
                    "graceful_seconds": 30,
                    "drain_seconds": 300,
                    "claim_seconds": 5,
                },
                "recycle": {"max_requests": None, "max_rss_mib": None},
            }
        },
        "log": {"level": "info", "format": "console"},
    }
    assert config.source == path
    assert config.warnings == ()


def test_the_whole_config_of_the_design_is_accepted(write: Write) -> None:
    """Every key that the design names can be given."""
    path = write(
        "name: counter\n"
        "runtime_dir: /run/gym-supervise/counter\n"
        "servers:\n"
        "  counter:\n"
        "    app: examples.counter:app\n"
        "    factory: true\n"
        "    chdir: .\n"
        "    env: {}\n"
        "    bind: 127.0.0.1:8000\n"
        "    workers: 4\n"
        "    placement: least_sessions\n"
        "    affinity:\n"
        "      preset: gym-resources\n"
        "      cookie: name\n"
        '      secret: "${SECRET}"\n'
        "      max_age: 100\n"
        "      field: session_id\n"
        "      session_starts: []\n"
        "      session_ends: []\n"
        "      stateless_routes: [/aggregate_metrics]\n"
        "      session_close_retry_window_seconds: 300\n"
        "      idle_seconds: null\n"
        "      open_idle_seconds: null\n"
        "      remember_closed: true\n"
        "    claims: {max_sessions: 50000, gone_retention_seconds: null}\n"
        "    uvicorn: {timeout_keep_alive: 5}\n"
        "    health: /healthz\n"
        "    boot_tries: 5\n"
        "    timeouts: {boot_seconds: 120, stall_seconds: 60, graceful_seconds: 30, drain_seconds: 300, "
        "claim_seconds: 5}\n"
        "    recycle: {max_requests: null, max_rss_mib: null}\n"
        "log: {level: info, format: console}\n"
    )
    config = load(path, {"SECRET": "s"})
    server = config.servers["counter"]
    assert config.runtime_dir == Path("/run/gym-supervise/counter")
    assert server.affinity is not None
    assert server.affinity.options() == {
        "preset": "gym-resources",
        "cookie": "name",
        "secret": "s",
        "max_age": 100,
        "field": "session_id",
        "session_starts": [],
        "session_ends": [],
        "stateless_routes": ["/aggregate_metrics"],
        "session_close_retry_window_seconds": 300,
        "idle_seconds": None,
        "open_idle_seconds": None,
        "remember_closed": True,
    }
    assert server.uvicorn == {"timeout_keep_alive": 5}


def test_custom_sources_reach_the_adapter_as_they_are(write: Write) -> None:
    """The custom preset's lists are passed on."""
    path = write(
        APP + "    affinity:\n"
        "      preset: custom\n"
        "      sources: [{header: x-session}, {cookie: sid}]\n"
        "      replies: [{response_header: x-session}]\n"
        "      starts: [POST /start]\n"
        "      unknown: claim\n"
    )
    affinity = load(path).servers["a"].affinity
    assert affinity is not None
    assert affinity.options() == {
        "preset": "custom",
        "sources": [{"header": "x-session"}, {"cookie": "sid"}],
        "replies": [{"response_header": "x-session"}],
        "starts": ["POST /start"],
        "unknown": "claim",
    }


def test_a_bare_preset_is_a_mapping_with_it(write: Write) -> None:
    """`affinity: none` means `affinity: {preset: none}`."""
    config = load(write(APP + "    workers: 4\n    affinity: none\n"))
    assert config.servers["a"].affinity == Affinity(preset="none")


def test_paths_are_relative_to_the_files_folder(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command was started plays no part."""
    (tmp_path / "app").mkdir()
    path = write("runtime_dir: run\n" + APP + "    chdir: app\n    bind: unix:s/x.sock\n")
    monkeypatch.chdir("/")
    config = load(os.path.relpath(path))
    assert config.runtime_dir == tmp_path / "run"
    assert config.servers["a"].chdir == tmp_path / "app"
    assert config.servers["a"].bind == Bind(kind="unix", path=str(tmp_path / "s/x.sock"))


def test_variables_are_replaced_before_a_value_is_read(write: Write) -> None:
    """An unquoted variable may be a number, a quoted one is a text, and $${ is a literal ${."""
    path = write(
        APP + "    workers: ${N}\n"
        "    affinity: {preset: none}\n"
        '    env: {A: "${N}", B: "x${N}y", C: "$${N}", D: "$N", E: "${N}${EMPTY}"}\n'
    )
    server = load(path, {"N": "3", "EMPTY": ""}).servers["a"]
    assert server.workers == 3
    assert server.env == {"A": "3", "B": "x3y", "C": "${N}", "D": "$N", "E": "3"}


def test_environment_values_are_texts_as_written(write: Write) -> None:
    """What looks like a number or a switch reaches the worker as it stands in the file."""
    path = write(
        APP + "    env: {A: 010, B: yes, C: true, D: 1.50, E: 1_000, F: 12:30:45, G: 0x1F, H: ''}\n"
        "  b:\n    app: m:app\n    bind: :1\n    env: {I: '${V}'}\n"
    )
    servers = load(path, {"V": "007"}).servers
    env = servers["a"].env | servers["b"].env
    assert env == {
        "A": "010",
        "B": "yes",
        "C": "true",
        "D": "1.50",
        "E": "1_000",
        "F": "12:30:45",
        "G": "0x1F",
        "H": "",
        "I": "007",
    }


def test_merged_mappings_are_shared_and_overridden(write: Write) -> None:
    """`<<` takes what a mapping does not say itself."""
    path = write(
        "servers:\n"
        "  a: &a\n    app: m:app\n    bind: :1\n    timeouts: {boot_seconds: 7}\n"
        "  b:\n    <<: *a\n    bind: :2\n"
    )
    config = load(path)
    assert config.servers["b"].app == "m:app"
    assert config.servers["b"].bind.port == 2
    assert config.servers["b"].timeouts.boot_seconds == 7


def test_sections_with_everything_commented_out_are_the_defaults(write: Write) -> None:
    """A key without a value, as a commented-out section leaves it, is no error."""
    config = load(write(APP + "    timeouts:\n    claims:\n    uvicorn:\n    env:\nlog:\n"))
    assert config.model_dump() == load(write(APP)).model_dump()


def test_two_servers_with_one_cookie_and_secret_are_warned_of(write: Write) -> None:
    """Browsers ignore ports in cookies; the secret itself is not shown."""
    affinity = "    affinity: {preset: starlette-session, field: id, cookie: c, secret: hunter2}\n"
    other = affinity.replace("hunter2", "other")
    text = APP + affinity + "  b:\n    app: m:app\n    bind: :1\n"
    (warning,) = load(write(text + affinity)).warnings
    assert "servers.b.affinity" in warning
    assert "those of server a too" in warning
    assert "hunter2" not in warning
    assert load(write(text + other)).warnings == ()


@pytest.mark.parametrize("level", ["name", "runtime_dir", "servers.x.app"])
def test_the_models_cannot_be_changed(level: str) -> None:
    """What every process inherits is the same in all of them."""
    config = Config(name="x", runtime_dir=Path("/x"), servers={"x": ServerConfig(app="m:app")})
    target, _, key = level.rpartition(".")
    with pytest.raises(ValueError, match="frozen"):
        setattr(config.servers["x"] if target else config, key, "y")


# ---- where a service runs


def test_the_runtime_folder_defaults_to_what_systemd_or_the_login_gives(write: Write, tmp_path: Path) -> None:
    """$RUNTIME_DIRECTORY first, then $XDG_RUNTIME_DIR, then one under /tmp for each user."""
    path = write(APP)
    xdg = {"XDG_RUNTIME_DIR": "/var"}
    assert load(path, {"RUNTIME_DIRECTORY": "/run/x:/run/y"} | xdg).runtime_dir == Path("/run/x")
    assert load(path, xdg).runtime_dir == Path("/var/gym-supervise/config")
    temporary = Path(f"/tmp/gym-supervise-{os.getuid()}/config")
    assert load(path, {}).runtime_dir == temporary
    assert load(path, {"XDG_RUNTIME_DIR": str(tmp_path / "gone")}).runtime_dir == temporary
    assert load(path, {"RUNTIME_DIRECTORY": "relative"}).runtime_dir == temporary


def test_locate_needs_neither_a_right_file_nor_its_variables(write: Write, tmp_path: Path) -> None:
    """Status and stop work while the file is being edited, and from a shell without the secrets."""
    path = write("name: n\nruntime_dir: run\nservers:\n  a: {app: 3, secret: '${SECRET}', x: 1, x: 2}\n")
    place = locate(path, {})
    assert (place.name, place.runtime_dirs) == ("n", (tmp_path / "run",))


def test_locate_knows_every_place_a_service_may_have_been_started_to(write: Write, tmp_path: Path) -> None:
    """A service of systemd is found from a login shell, and the other way round."""
    places = locate(write(APP), {"XDG_RUNTIME_DIR": str(tmp_path)}).runtime_dirs
    assert places[0] == tmp_path / "gym-supervise/config"
    assert {Path("/run/gym-supervise/config"), Path(f"/tmp/gym-supervise-{os.getuid()}/config")} <= set(places)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [x]\n", "1: name: found a list of 1"),
        ("runtime_dir: ${NOPE}\n", "1: runtime_dir: found ${NOPE}, expected an environment variable NOPE"),
        ("runtime_dir: 3\n", "1: runtime_dir: found 3, expected the path of a folder"),
        ("a: [\n", "2: found what is not YAML"),
    ],
)
def test_locate_says_what_keeps_it_from_finding_the_service(write: Write, text: str, expected: str) -> None:
    """Only what names the place can be wrong for it."""
    path = write(text)
    with pytest.raises(ConfigError) as error:
        locate(path, {})
    assert str(error.value).startswith(f"{path}:{expected}")


# ---- YAML


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    """Whatever is in a file, there are values or problems, with lines inside the file."""
    document = parse(text, {})
    for problem in document.problems:
        assert problem.text.startswith("found")
        assert problem.line >= 1


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers() | st.booleans() | st.none()))
def test_plain_values_are_read_back(values: dict[str, object]) -> None:
    """Numbers, switches and nothing come back as they were, each with its line."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in values.items()]
    document = parse("\n".join(lines), {})
    assert document.data == (values or None)
    assert [document.lines[(key,)] for key in values] == list(range(1, len(values) + 1))
