"""What is wrong with a config, word for word: place, key, what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server_adapters.registry import PRESETS
from supervisor.config import load
from supervisor.errors import ConfigError

APP = "servers:\n  a:\n    app: m:app\n"


def _cases() -> list[tuple[str, str]]:
    """Files and their error from bad_configs.txt: `=====`, the file, `----- LINE: KEY: error`."""
    text = (Path(__file__).parent / "bad_configs.txt").read_text()
    cases = []
    for case in text.split("=====\n")[1:]:
        file, _, expected = case.partition("----- ")
        cases.append((file.replace("<TAB>", "\t"), expected.strip()))
    return cases


@pytest.mark.parametrize(("text", "expected"), _cases())
def test_each_mistake_is_named_with_place_key_and_remedy(
    write: Callable[[str], Path], text: str, expected: str
) -> None:
    """One wrong thing in a file gives one line, and it says all that is needed to mend it."""
    import uvicorn

    path = write(text)
    with pytest.raises(ConfigError) as error:
        load(path, {"TEXT": "hunter2"})
    expected = expected.replace("FOLDER", str(path.parent)).replace("UVICORN", uvicorn.__version__)
    expected = expected.replace("PRESETS", ", ".join(PRESETS))
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
        (
            f"{missing}: found nothing that can be read (No such file or directory), expected a YAML file; "
            "`gym-supervise init` writes one"
        ),
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
        (
            f"{path}:1: runtime_dir: found {folder} (85 bytes), expected at most 72 bytes: Linux's limit for the path "
            "of a Unix socket is 107, and a-rather-long-name.4294967295.sock goes into the folder; "
            "give a shorter runtime_dir"
        ),
    )
    assert len("/" + "a-rather-long-name.4294967295.sock") + 72 == 107
