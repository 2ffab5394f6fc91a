"""Runs a script up to its call of uvicorn, in a child process, to learn what it would serve and where.

The supervisor opens the public sockets before it forks a worker, and imports nothing of the app's. So a script that is
to say where it listens is run once more than there are workers. At its call SystemExit ends it, with its `finally` and
exit handlers: what comes after the call is not run, since nothing has been served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import uvicorn

from supervisor.config import ScriptApp, ServerConfig
from supervisor.config.models import UVICORN_DEFAULTS
from supervisor.processes import aside
from supervisor.scripts import calls
from supervisor.scripts.main_module import ScriptSyntaxError, run_as_main, script_traceback
from supervisor.scripts.said import IN_THREAD, UnusableCall, exit_text, no_call_text, uvicorn_options

BESIDE = "an import string is looked up beside the script and on sys.path"


class _Stop(SystemExit):
    """Ends the script at its call."""

    def __init__(self) -> None:
        super().__init__(0)


def run_to_call(server: ServerConfig, on_call: Callable[[calls.Call], None], on_failure: Callable[[str], None]) -> None:
    """Run a server's script, in this process and for good, up to its first call of uvicorn.

    Args:
        server: its working folder and environment have been entered.
        on_call: is given the call, in the script's event loop; the script ends when it returns. May raise UnusableCall.
        on_failure: is told why there is no call that could be served.

    """
    script = server.script
    assert script is not None
    prompter = _Prompter(server, script, on_call, on_failure)
    calls.install(prompter)
    try:
        run_as_main(str(script.script), script.argv, folder=str(server.chdir))
    except SystemExit as error:
        prompter.over(exit_text(script, error))
    except ScriptSyntaxError as error:
        prompter.over(str(error))
    except BaseException as error:
        prompter.over(script_traceback(error))
    else:
        prompter.over(no_call_text(script))


def load_called(call: calls.Call, server: ServerConfig) -> tuple[Any, Any]:
    """The app of a call: the object itself, and the ASGI 3 app that uvicorn makes of it. Raises AppError."""
    from supervisor.worker.apps import make_app

    return make_app(call.config.app, merged_options(call, server), factory=call.config.factory, do=BESIDE)


def merged_options(call: calls.Call, server: ServerConfig) -> dict[str, Any]:
    """Uvicorn's options: ours, the script's above them, the config's above both."""
    return UVICORN_DEFAULTS | uvicorn_options(call) | server.uvicorn


class _Prompter:
    """Stands in uvicorn's place until the script calls it."""

    def __init__(
        self,
        server: ServerConfig,
        script: ScriptApp,
        on_call: Callable[[calls.Call], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._server = server
        self._script = script
        self._on_call = on_call
        self._on_failure = on_failure
        self._over = False
        self._loading = False

    @property
    def listens(self) -> bool:
        """See calls.Taker."""
        return not self._over

    @property
    def loading(self) -> bool:
        """See calls.Taker."""
        return self._loading

    @property
    def configured(self) -> Mapping[str, Any]:
        """See calls.Taker."""
        return self._server.uvicorn

    def is_own(self, _server: uvicorn.Server) -> bool:
        """See calls.Taker: nothing is served here."""
        return False

    def logging_is_set_up(self) -> None:
        """See calls.Taker."""

    def refuse(self, text: str) -> BaseException:
        """See calls.Taker."""
        if self._loading:
            return UnusableCall(text)
        self.over(f"{self._script}: {text}")
        return _Stop()

    async def take(self, call: calls.Call) -> None:
        """Tell what the call says, and end the script."""
        if self._over:
            raise _Stop
        if call.in_thread:
            self.over(f"{self._script}: {IN_THREAD}")
            aside.leave()  # nobody knows for what the main thread waits
        self._over = self._loading = True
        try:
            self._on_call(call)
        except UnusableCall as error:
            self._on_failure(f"{self._script}: {error}")
        except BaseException as error:
            self._on_failure(script_traceback(error))
        raise _Stop

    def over(self, text: str) -> None:
        """The script has ended: `text` is why, unless that was its call."""
        if not self._over:
            self._over = True
            self._on_failure(text)
