"""A worker whose app is a script's: it runs the script, serves where that calls uvicorn, and lets it run to its end.

run the script -> its call of uvicorn -> load the app -> serve, as any worker -> the call returns -> the script's end

What fails before the app serves is a failed boot, whatever the script makes of it. What the script has set for SIGTERM
is called when serving has ended, as uvicorn does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import uvicorn

from server_adapters import registry
from supervisor.config import ScriptApp
from supervisor.logs import lines as logs
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.scripts import calls
from supervisor.scripts.main_module import ScriptSyntaxError, run_as_main, script_traceback
from supervisor.scripts.probe import load_called, merged_options
from supervisor.scripts.said import IN_THREAD, TWICE, Said, UnusableCall, exit_text, no_call_text, said
from supervisor.worker.apps import AppError
from supervisor.worker.serving import Server

logger = logging.getLogger("gym_supervise.worker")

BOOT_FAILED = 3
OTHER = 1
WATCH_SECONDS = 0.1


class Serving(Protocol):
    """What serves: main.Worker."""

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""

    async def run(self) -> int:
        """Serve until told to finish; the exit status."""

    def stop_by_itself(self, reason: str) -> None:
        """Stop gracefully, though nobody outside has said so."""


class _Over(SystemExit):
    """Ends the script after its boot has failed, as uvicorn does; the supervisor knows why."""

    def __init__(self) -> None:
        super().__init__(BOOT_FAILED)


def run(
    spec: WorkerSpec,
    script: ScriptApp,
    serving: Callable[[WorkerSpec, Any, Any], Serving],
    fail: Callable[[WorkerSpec, str], int],
) -> int:
    """Run the script in this worker. Returns the exit status.

    Args:
        spec: the worker's.
        script: its server's app.
        serving: makes what serves, from an ASGI app and an adapter.
        fail: tells the supervisor why the boot has failed.

    """
    stage = _Stage(spec, script, serving, fail)
    calls.install(stage)
    try:
        run_as_main(str(script.script), script.argv, folder=str(spec.server.chdir))
    except _Over:
        return BOOT_FAILED
    except SystemExit as error:
        return stage.exited(error)
    except ScriptSyntaxError as error:
        return fail(spec, str(error))
    except BaseException as error:
        return stage.raised(error)
    return stage.ended()


class _Stage:
    """Stands in uvicorn's place while the script runs."""

    def __init__(
        self,
        spec: WorkerSpec,
        script: ScriptApp,
        serving: Callable[[WorkerSpec, Any, Any], Serving],
        fail: Callable[[WorkerSpec, str], int],
    ) -> None:
        self._spec = spec
        self._script = script
        self._make = serving
        self._fail = fail
        self._serving: Serving | None = None
        self._failed = False
        self._called = False
        self._over = False

    @property
    def listens(self) -> bool:
        """See calls.Taker."""
        return not self._called

    def is_own(self, server: uvicorn.Server) -> bool:
        """See calls.Taker."""
        return isinstance(server, Server)

    @property
    def loading(self) -> bool:
        """See calls.Taker."""
        return self._called and self._serving is None and not self._failed

    @property
    def configured(self) -> Mapping[str, Any]:
        """See calls.Taker."""
        return self._spec.server.uvicorn

    def logging_is_set_up(self) -> None:
        """See calls.Taker."""
        logs.settle()

    def refuse(self, text: str) -> BaseException:
        """See calls.Taker."""
        return UnusableCall(text) if self.loading else self._refused(text)

    async def take(self, call: calls.Call) -> None:
        """Serve the call's app as this worker's."""
        if self._failed or (call.in_thread and not self._called):
            # A script that catches SystemExit and tries again, or one whose main thread waits for who knows what.
            if not self._failed:
                self._fail(self._spec, f"{self._script}: {IN_THREAD}")
            logs.shut_down()
            os._exit(BOOT_FAILED)
        if self._called:
            raise self._refused(IN_THREAD if call.in_thread else TWICE)
        self._called = True
        try:
            spec = self._spec_for(call)
            app, asgi = load_called(call, self._spec.server)
            adapter = registry.build(_affinity(spec), app, server=spec.name)
        except (UnusableCall, AppError) as error:
            raise self._refused(str(error)) from None
        except registry.AffinityError as error:
            self._failed = True
            self._fail(self._spec, f"servers.{self._spec.name}.affinity.{error.key}: {error}")
            raise _Over from None
        except BaseException as error:
            self._failed = True
            self._fail(self._spec, script_traceback(error))
            raise _Over from None
        await self._serve(call, self._make(spec, asgi, adapter))

    async def _serve(self, call: calls.Call, serving: Serving) -> None:
        self._serving = serving
        before = signal.getsignal(signal.SIGTERM)
        watch = asyncio.get_running_loop().create_task(_mirror(call.server, serving))
        try:
            status = await serving.run()
        except Exception:
            logger.exception("the worker failed")
            raise
        finally:
            self._over = serving.ready  # also where the script itself has cancelled it
            watch.cancel()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
        if status != 0:
            self._failed = True
            raise _Over
        self._over = True  # a stop before it was ready is an end like any other
        if callable(before):
            signal.raise_signal(signal.SIGTERM)

    def _spec_for(self, call: calls.Call) -> WorkerSpec:
        """This worker's, with what the script says to uvicorn below what the config says."""
        self._check_bind(said(call, self._spec.server))
        if call.options.get("reload"):
            logger.warning("%s: reload=True is not done: `gym-supervise reload` takes changed code", self._script)
        server = self._spec.server
        options = merged_options(call, server)
        if options.get("access_log", True):
            logs.hush_uvicorn()
        return replace(self._spec, server=server.model_copy(update={"uvicorn": options}))

    def _check_bind(self, found: Said) -> None:
        server = self._spec.server
        if "bind" in server.from_script and found.bind != server.bind:
            raise UnusableCall(
                f"found {found.bind} in the call of uvicorn, expected {server.bind}, which the script has said before"
                " and the service listens on; say `bind` in the config, or --bind, or stop and start"
            )

    def _refused(self, text: str) -> BaseException:
        """A call that is refused: a failed boot before there is an app, otherwise the script's affair."""
        text = f"{self._script}: {text}"
        if self._serving is None or not (self._serving.ready or self._over):
            self._failed = True
            self._fail(self._spec, text)
            return _Over()
        logger.error("%s", text)
        return SystemExit(OTHER) if self._over else RuntimeError(text)

    def exited(self, error: SystemExit) -> int:
        """The script has called sys.exit."""
        if self._failed:
            return BOOT_FAILED
        if self._over:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr, flush=True)  # as the interpreter does
            return error.code if isinstance(error.code, int) else OTHER if error.code else 0
        return self._fail(self._spec, exit_text(self._script, error))

    def raised(self, error: BaseException) -> int:
        """The script has raised something else."""
        if self._failed:
            return BOOT_FAILED
        if not self._over:
            return self._fail(self._spec, script_traceback(error))
        logger.error("the script failed after its app had been served:\n%s", script_traceback(error).rstrip())
        return OTHER

    def ended(self) -> int:
        """The script has come to its end."""
        if self._failed:
            return BOOT_FAILED
        return 0 if self._over else self._fail(self._spec, no_call_text(self._script))


def _affinity(spec: WorkerSpec) -> dict[str, Any]:
    return {"preset": "none"} if spec.server.affinity is None else spec.server.affinity.options()


async def _mirror(server: uvicorn.Server, serving: Serving) -> None:
    """Let the script see in its own server object that this worker serves, and end the worker through it."""
    while True:
        server.started = server.started or serving.ready
        if server.should_exit or server.force_exit:
            serving.stop_by_itself("the script has set should_exit")
            return
        await asyncio.sleep(WATCH_SECONDS)
