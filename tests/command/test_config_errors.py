"""What is wrong with a config, word for word: place, key, what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config import ConfigError, load

APP = "servers:\n  a:\n    app: m:app\n"
KEYS = "app, factory, chdir, env, bind, workers, placement, affinity, claims, uvicorn, health, boot_tries, timeouts, recycle"
BIND = "HOST:PORT, [IPv6]:PORT, :PORT, unix:PATH, fd://N or systemd:NAME"
PRESETS = "gym-resources, gym-agent, starlette-session, custom, none"
NAME = "letters, digits, dots, dashes and underscores, at most 64, a letter or digit first"
TOP = "name, runtime_dir, servers, log"

ONE_ERROR = [
    # the file as a whole
    ("", "1: servers: found nothing, expected a mapping of at least one server"),
    ("[1]\n", f"1: found a list of 1, expected a mapping with {TOP}"),
    ("just text\n", f"1: found 'just text', expected a mapping with {TOP}"),
    ("servers: {}\n", "1: servers: found an empty mapping, expected a mapping of at least one server"),
    ("servers:\n", "1: servers: found nothing, expected a mapping of at least one server"),
    ("servers: [a]\n", "1: servers: found a list of 1, expected a mapping of at least one server"),
    (APP + "server: {}\n", f"4: server: found an unknown key, expected one of {TOP}; did you mean servers?"),
    (APP + "workers: 4\n", f"4: workers: found an unknown key, expected one of {TOP}; it belongs under servers.NAME"),
    (APP + "zzz: 4\n", f"4: zzz: found an unknown key, expected one of {TOP}"),
    (APP + "name: a b\n", f"4: name: found 'a b', expected {NAME}"),
    (APP + "name: 3\n", "4: name: found 3, expected a name"),
    (APP + "runtime_dir: [x]\n", "4: runtime_dir: found a list of 1, expected the path of a folder"),
    (APP + "log: {level: loud}\n", "4: log.level: found 'loud', expected debug, info, warning, error or critical"),
    (APP + "log: {format: xml}\n", "4: log.format: found 'xml', expected console or json"),
    (APP + "log: json\n", "4: log: found 'json', expected a mapping with level, format"),
    (APP + "log: {colour: red}\n", "4: log.colour: found an unknown key, expected one of level, format"),
    # a server
    ("servers:\n  a b:\n    app: m:app\n", f"2: servers.a b: found the name 'a b', expected {NAME}"),
    ("servers:\n  a:\n", "2: servers.a: found nothing, expected a mapping with at least app"),
    ("servers:\n  a: {}\n", "2: servers.a.app: found nothing, expected module:attribute"),
    (
        "servers:\n  a:\n    app: m\n",
        "3: servers.a.app: found 'm', expected module:attribute; write it as in Python, such as my_package.server:app",
    ),
    (
        "servers:\n  a:\n    app: my/server.py:app\n",
        "3: servers.a.app: found 'my/server.py:app', expected module:attribute; "
        "write it as in Python, such as my_package.server:app",
    ),
    (APP + "    worker: 1\n", f"4: servers.a.worker: found an unknown key, expected one of {KEYS}; did you mean workers?"),
    (
        APP + "    max_sessions: 1\n",
        f"4: servers.a.max_sessions: found an unknown key, expected one of {KEYS}; it belongs under servers.NAME.claims",
    ),
    (APP + "    factory: yes\n", "4: servers.a.factory: found 'yes', expected true or false"),
    (APP + "    chdir: nowhere\n", "4: servers.a.chdir: found FOLDER/nowhere, which is none, expected an existing folder"),
    (APP + "    env: [A=1]\n", "4: servers.a.env: found a list of 1, expected a mapping of names to texts"),
    (APP + "    env: {A: [1]}\n", "4: servers.a.env.A: found a list of 1, expected a text"),
    (APP + "    env: {A: null}\n", "4: servers.a.env.A: found nothing, expected a text"),
    (APP + "    env: {A-B: x}\n", "4: servers.a.env: found 'A-B', expected names of letters, digits and underscores"),
    (APP + "    workers: 0\n", "4: servers.a.workers: found 0, expected a whole number from 1 to 120"),
    (APP + "    workers: 121\n", "4: servers.a.workers: found 121, expected a whole number from 1 to 120"),
    (APP + "    workers: '4'\n", "4: servers.a.workers: found '4', expected a whole number from 1 to 120"),
    (APP + "    workers: 2.0\n", "4: servers.a.workers: found 2.0, expected a whole number from 1 to 120"),
    (APP + "    workers: true\n", "4: servers.a.workers: found true, expected a whole number from 1 to 120"),
    (APP + "    placement: random\n", "4: servers.a.placement: found 'random', expected least_sessions or accepting"),
    (APP + "    health: healthz\n", "4: servers.a.health: found 'healthz', expected a path that starts with /, or null"),
    (APP + "    boot_tries: 0\n", "4: servers.a.boot_tries: found 0, expected a whole number greater than 0"),
    (
        APP + "    timeouts: {boot_seconds: 0}\n",
        "4: servers.a.timeouts.boot_seconds: found 0, expected seconds, greater than 0",
    ),
    (
        APP + "    timeouts: {stall_seconds: soon}\n",
        "4: servers.a.timeouts.stall_seconds: found 'soon', expected seconds, greater than 0",
    ),
    (
        APP + "    timeouts: {boot: 3}\n",
        "4: servers.a.timeouts.boot: found an unknown key, expected one of boot_seconds, stall_seconds, graceful_seconds, "
        "drain_seconds, claim_seconds; did you mean boot_seconds?",
    ),
    (
        APP + "    claims: {max_sessions: 0}\n",
        "4: servers.a.claims.max_sessions: found 0, expected a whole number from 1 to 10000000",
    ),
    (
        APP + "    recycle: {max_requests: -5}\n",
        "4: servers.a.recycle.max_requests: found -5, expected a whole number greater than 0, or null",
    ),
    # binds
    (APP + "    bind: localhost\n", f"4: servers.a.bind: found 'localhost', expected {BIND}"),
    (
        APP + "    bind: 8000\n",
        f"4: servers.a.bind: found 8000, expected {BIND}; write 127.0.0.1:8000, or :8000 for every address of this host",
    ),
    (APP + "    bind: ':70000'\n", "4: servers.a.bind: found ':70000', expected a port from 0 (the kernel chooses) to 65535"),
    (
        APP + "    bind: fd://1\n",
        "4: servers.a.bind: found 'fd://1', expected fd://N with the number of an inherited descriptor, 3 or more",
    ),
    (
        APP + "    bind: ::1:8000\n",
        f"4: servers.a.bind: found '::1:8000', expected {BIND}; "
        'write an IPv6 address in brackets, and the whole in quotes: "[::1]:8000"',
    ),
    (
        APP + "    bind: [::1]:8000\n",
        "4: found what is not YAML (column 12: expected the node content, but found ':')"
        '; write an IPv6 address in quotes: "[::1]:8000"',
    ),
    (
        APP + f"    bind: unix:/{'x' * 120}\n",
        f"4: servers.a.bind: found /{'x' * 120} (121 bytes), expected at most 107 bytes, "
        "which is Linux's limit for the path of a socket; choose a shorter path",
    ),
    (
        APP + "  b:\n    app: m:app\n",
        "4: servers.b.bind: found nothing, which means 127.0.0.1:8000, and that cannot be had beside the 127.0.0.1:8000 "
        "of server a, expected an address of its own for each server",
    ),
    (
        APP + "    bind: :80\n  b:\n    app: m:app\n    bind: 127.0.0.1:80\n",
        "7: servers.b.bind: found 127.0.0.1:80, which cannot be had beside the 0.0.0.0:80 of server a, "
        "expected an address of its own for each server",
    ),
    (
        APP + "    bind: unix:x.sock\n  b:\n    app: m:app\n    bind: unix:./y/../x.sock\n",
        "7: servers.b.bind: found unix:FOLDER/x.sock, which cannot be had beside the unix:FOLDER/x.sock of server a, "
        "expected an address of its own for each server",
    ),
    # affinity
    (
        APP + "    workers: 4\n",
        "2: servers.a.affinity: found nothing, expected an affinity with a preset, since workers is 4; "
        f"presets are {PRESETS}; a worker does not have its siblings' sessions, "
        "so say `affinity: {preset: none}` only for a server that keeps none",
    ),
    (
        APP + "    workers: 4\n    affinity:\n",
        "5: servers.a.affinity: found nothing, expected an affinity with a preset, since workers is 4; "
        f"presets are {PRESETS}; a worker does not have its siblings' sessions, "
        "so say `affinity: {preset: none}` only for a server that keeps none",
    ),
    (APP + "    affinity: {}\n", "4: servers.a.affinity.preset: found nothing, expected the name of a preset"),
    (APP + "    affinity: {preset: gym}\n", f"4: servers.a.affinity.preset: found 'gym', expected one of {PRESETS}"),
    (APP + "    affinity: gym\n", f"4: servers.a.affinity.preset: found 'gym', expected one of {PRESETS}"),
    (
        APP + "    affinity: {preset: gym-resources, secret: 12345}\n",
        "4: servers.a.affinity.secret: found a value that is not shown here, "
        "expected the secret that signs the session cookie",
    ),
    (
        APP + "    affinity: {preset: gym-resources, idle_seconds: -1}\n",
        "4: servers.a.affinity.idle_seconds: found -1, expected seconds, greater than 0, or null",
    ),
    (
        APP + "    affinity: {preset: gym-resources, session_ends: /x}\n",
        "4: servers.a.affinity.session_ends: found '/x', expected a list of routes",
    ),
    (
        APP + "    affinity: {preset: gym-resources, session_ends: [3]}\n",
        "4: servers.a.affinity.session_ends[0]: found 3, expected an item of a list of routes",
    ),
    (
        APP + "    affinity: {preset: gym-resources, unknown: maybe}\n",
        "4: servers.a.affinity.unknown: found 'maybe', expected pass or claim",
    ),
    # uvicorn
    (
        APP + "    uvicorn: {timeout_keepalive: 3}\n",
        "4: servers.a.uvicorn.timeout_keepalive: found an unknown key, "
        "expected a parameter of uvicorn.Config (uvicorn UVICORN); did you mean timeout_keep_alive?",
    ),
    (
        APP + "    uvicorn: {timeout_keep_alive: long}\n",
        "4: servers.a.uvicorn.timeout_keep_alive: found 'long', expected int, as uvicorn.Config takes it",
    ),
    # YAML
    (
        APP + "    workers: 1\n    workers: 2\n",
        "5: servers.a.workers: found the key a second time, expected it once; the first is in line 4",
    ),
    (APP + "\t- x\n", "4: found what is not YAML (column 1: found character '\\t' that cannot start any token)"
     "; indent with spaces, not with tabs"),
    (APP + "    env: {A: ${B}}\n", "4: found what is not YAML (column 15: expected ',' or '}', but got '{')"
     '; write ${...} inside { } or [ ] in quotes: "${NAME}"'),
    (APP + "    app2: !python/object:os.system x\n",
     "4: servers.a.app2: found the tag !python/object:os.system, expected none"),
    (APP + "? [1, 2]\n: x\n", "4: found a key that is a list or a mapping"),
    ("a: &a [*a]\n" + APP, "1: a[0]: found an alias for a value that contains it, expected none"),
    # variables
    (
        APP + "    workers: ${MISSING}\n",
        "4: servers.a.workers: found ${MISSING}, expected an environment variable MISSING; set it, it is not there",
    ),
    (
        APP + "    workers: ${TEXT}\n",
        "4: servers.a.workers: found ${TEXT} with a value that is not shown here, expected a whole number from 1 to 120",
    ),
    (
        APP + "    workers: ${NO-NAME}\n",
        "4: servers.a.workers: found ${NO-NAME}, expected ${NAME}; $${ stands for ${ itself",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ONE_ERROR)
def test_each_mistake_is_named_with_place_key_and_remedy(
    write: Callable[[str], Path], text: str, expected: str
) -> None:
    """One wrong thing in a file gives one line, and it says all that is needed to mend it."""
    import uvicorn

    path = write(text)
    with pytest.raises(ConfigError) as error:
        load(path, {"TEXT": "hunter2"})
    expected = expected.replace("FOLDER", str(path.parent)).replace("UVICORN", uvicorn.__version__)
    own = [
        line for line in error.value.problems if "app2: found an unknown" not in line and ": a: found an" not in line
    ]
    assert own == [f"{path}:{expected}"]
    assert "hunter2" not in str(error.value)


REFUSED = [
    ("workers", "4", "say it with the server's own `workers`"),
    ("reload", "true", "a reload ends sessions"),
    ("reload_dirs", "[x]", "a reload ends sessions"),
    ("host", "127.0.0.1", "say it with the server's own `bind`"),
    ("port", "80", "say it with the server's own `bind`"),
    ("uds", "x", "say it with the server's own `bind`"),
    ("fd", "3", "say it with the server's own `bind`"),
    ("app", "m:app", "say it with the server's own `app` and `factory`"),
    ("factory", "true", "say it with the server's own `app` and `factory`"),
    ("limit_max_requests", "100", "uvicorn would end the worker by itself"),
    ("callback_notify", "x", "the supervisor watches the workers itself"),
    ("env_file", ".env", "say it with the server's own `env`"),
    ("http2", "true", "HTTP/2 requests are not relayed"),
    ("log_config", "x", "say it under the top-level `log`"),
]


@pytest.mark.parametrize(("key", "value", "reason"), REFUSED)
def test_uvicorn_keys_that_would_break_the_supervision_are_refused_with_the_reason(
    write: Callable[[str], Path], key: str, value: str, reason: str
) -> None:
    """Each refused key of uvicorn says what to use instead, or why there is nothing."""
    path = write(APP + f"    uvicorn: {{{key}: {value}}}\n")
    with pytest.raises(ConfigError) as error:
        load(path)
    (line,) = error.value.problems
    assert line.startswith(f"{path}:4: servers.a.uvicorn.{key}: found a key that is refused here")
    assert reason in line


def test_all_errors_come_at_once_in_the_order_of_the_file(write: Callable[[str], Path]) -> None:
    """A file with many mistakes of every kind names all of them, top to bottom."""
    path = write(
        "nmae: x\n"
        "servers:\n"
        "  a:\n"
        "    app: m\n"
        "    workers: 300\n"
        "    bind: nowhere\n"
        "    uvicorn: {workers: 3, nothing: 1}\n"
        "    affinity: {preset: starlette-session}\n"
        "  b:\n"
        "    workers: 2\n"
        "log: {level: 3}\n"
        "log: {}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(path)
    keys = [line.removeprefix(f"{path}:").split(": found")[0] for line in error.value.problems]
    assert keys == [
        "1: nmae",
        "4: servers.a.app",
        "5: servers.a.workers",
        "6: servers.a.bind",
        "7: servers.a.uvicorn.workers",
        "7: servers.a.uvicorn.nothing",
        "8: servers.a.affinity.field",
        "9: servers.b.app",
        "9: servers.b.affinity",
        "11: log.level",
        "12: log",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no text are errors of the config, not tracebacks."""
    missing, folder, binary = tmp_path / "no.yaml", tmp_path, tmp_path / "x.yaml"
    binary.write_bytes(b"name: x\nservers: \xff\n")
    found = []
    for path in (missing, folder, binary):
        with pytest.raises(ConfigError) as error:
            load(path)
        found.append(str(error.value))
    assert found == [
        f"{missing}: found nothing that can be read (No such file or directory), expected a YAML file; "
        "`gym-supervise init` writes one",
        f"{folder}: found nothing that can be read (Is a directory), expected a YAML file",
        f"{binary}:2: found bytes that are not UTF-8, expected UTF-8",
    ]


def test_aliases_that_multiply_are_refused_quickly(write: Callable[[str], Path]) -> None:
    """Ten lines that mean a billion values end in an error, not in an endless load."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="found more than 20000 values, expected fewer"):
        load(write("\n".join(lines) + "\n"))


def test_values_nested_too_deeply_are_an_error(write: Callable[[str], Path]) -> None:
    """A thousand brackets do not end in a RecursionError."""
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(write("a: " + "[" * 5000 + "]" * 5000))


def test_a_runtime_dir_too_long_for_a_socket_names_the_limit(write: Callable[[str], Path]) -> None:
    """The private sockets' paths are checked before anything is bound, for the longest server name."""
    folder = "/tmp/" + "x" * 80
    path = write(f"runtime_dir: {folder}\n" + APP.replace("  a:", "  a-rather-long-name:"))
    with pytest.raises(ConfigError) as error:
        load(path)
    assert error.value.problems == (
        f"{path}:1: runtime_dir: found {folder} (85 bytes), expected at most 72 bytes: Linux's limit for the path of a "
        "Unix socket is 107, and a-rather-long-name.4294967295.sock goes into the folder; give a shorter runtime_dir",
    )
    assert len("/" + "a-rather-long-name.4294967295.sock") + 72 == 107
