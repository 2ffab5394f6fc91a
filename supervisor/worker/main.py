"""A worker: the user's app under uvicorn, with the router around it and the supervisor on the other end of a link.

fork -> load the app -> lifespan start-up -> private socket -> public listener -> Ready
StopAccepting -> public listener closed -> Quiet once no public connection is left
Finish -> relayed requests end -> lifespan shut-down -> exit 0
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Coroutine
from typing import Any

import uvicorn

from server_adapters import registry
from server_adapters.adapter import Adapter
from supervisor.config import LogConfig
from supervisor.logs import files as log_files
from supervisor.logs import lines as logs
from supervisor.processes import messages
from supervisor.processes.worker_spec import WorkerSpec
from supervisor.routing.assembly import Routing, assemble
from supervisor.worker import quorum, script, uvicorn_logs
from supervisor.worker.apps import AppError, app_traceback, load_app
from supervisor.worker.closing import Closing
from supervisor.worker.draining import cut, drained
from supervisor.worker.handing import Giving, Taking
from supervisor.worker.heartbeat import Heartbeat
from supervisor.worker.lifespan import Lifespan
from supervisor.worker.memory import keep_freed_memory
from supervisor.worker.serving import Server
from supervisor.worker.turns import Turns

logger = logging.getLogger("gym_supervise.worker")

BOOT_FAILED = 3

PATIENCE_SECONDS = 0.5
"""After Finish: what runs then has had its time already, graceful_seconds or drain_seconds of it."""


def main(spec: WorkerSpec) -> int:
    """Run one worker to its end, in a process just forked for it. Returns its exit status."""
    options = spec.server.uvicorn
    logs.configure(spec.config.log, role=f"{spec.name}.{spec.index}", colors=options.get("use_colors"))
    signal.signal(signal.SIGUSR1, _wait_for_loop)
    keep_freed_memory()
    spec.segment.table.bind(spec.incarnation, spec.index)
    try:
        uvicorn_logs.apply(options)
        if spec.server.script is not None:
            return script.run(spec, spec.server.script, Worker, _boot_failed)
        app, asgi = load_app(spec.server)
        adapter = registry.build(_affinity(spec), app, server=spec.name)
    except AppError as error:
        return _boot_failed(spec, str(error))
    except uvicorn_logs.LogConfigError as error:
        return _boot_failed(spec, f"servers.{spec.name}.uvicorn.log_config: {error}")
    except registry.AffinityError as error:
        return _boot_failed(spec, f"servers.{spec.name}.affinity.{error.key}: {error}")
    except BaseException as error:
        # An app may call sys.exit while it is imported.
        return _boot_failed(spec, app_traceback(error))
    loop = uvicorn.Config(asgi, log_config=None, loop=spec.server.uvicorn.get("loop", "auto")).get_loop_factory()
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(_serve(spec, asgi, adapter))


def _wait_for_loop(_number: int, _frame: object) -> None:
    """SIGUSR1 before the loop runs: no log file is old enough to be rotated. The default would end the worker, and
    `systemctl kill -s USR1` signals every process of the service.
    """


async def _serve(spec: WorkerSpec, app: Any, adapter: Adapter) -> int:
    return await Worker(spec, app, adapter).run()


def _affinity(spec: WorkerSpec) -> dict[str, Any]:
    return {"preset": "none"} if spec.server.affinity is None else spec.server.affinity.options()


def _boot_failed(spec: WorkerSpec, text: str) -> int:
    try:
        messages.send(spec.link, messages.BootFailed(text))
    except messages.LinkClosed:
        logger.error("the app failed to boot and the supervisor is gone:\n%s", text)  # noqa: TRY400 - text has it
    return BOOT_FAILED


class Worker:
    """One worker between its fork and its exit. Everything here runs in its event loop."""

    def __init__(self, spec: WorkerSpec, app: Any, adapter: Adapter) -> None:
        self.spec = spec
        self.lifespan = Lifespan(app)
        self.routing: Routing = assemble(spec, app, adapter)
        options = uvicorn_logs.others(spec.server.uvicorn) | {"interface": "asgi3", "log_config": None}
        self.closing = Closing(self.routing.router, self.lifespan)
        config = uvicorn.Config(self.closing, **options)
        config.load()
        logs.settle()
        self._giving = Giving(spec, self.routing.router)
        self.server = Server(
            config, opens=self._open, drains=self.routing.drain, tells=self.routing.end_relays, hands=self._giving
        )
        self._turns = Turns(spec.segment.ring, self.routing.row, spec.incarnation, self.server.count)
        self._heartbeat = Heartbeat(self.routing.row, self._turns.publish)
        self._stopping = False
        self._serving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""
        return self.routing.router.ready

    async def run(self) -> int:
        """Serve until told to finish. Returns the exit status."""
        loop = asyncio.get_running_loop()
        link = self.spec.link
        loop.add_reader(link.fileno(), self._on_link)
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        if signal.getsignal(signal.SIGUSR1) is _wait_for_loop:  # else the app has a use of its own for it
            loop.add_signal_handler(signal.SIGUSR1, self._reopen_logs)
        self._heartbeat.start()
        sweeper = loop.create_task(self.routing.sweep())
        self._serving = loop.create_task(self.server.serve(sockets=[]))
        try:
            await self._serving
        except asyncio.CancelledError:
            if not self.server.should_exit:
                raise
        except SystemExit:
            # uvicorn's way to say that the lifespan's start-up failed; the app's own text is in the message.
            return _boot_failed(self.spec, self.lifespan.failure or "the app's lifespan start-up failed")
        except Exception:
            if self.routing.router.ready:
                raise
            return _boot_failed(self.spec, traceback.format_exc())
        finally:
            sweeper.cancel()
            self._heartbeat.stop()
            loop.remove_reader(link.fileno())
            self._giving.close()
            await self.routing.close()
        return 0

    async def _open(self) -> None:
        """The lifespan's start-up is done: open the private socket, say so, then open the public one."""
        if self.server.should_exit:
            return
        logs.settle()
        await self.routing.open(self.server.lifespan.state, self.server.server_state.tasks)
        self._hand_over()
        self.routing.router.ready = True
        messages.send(self.spec.link, messages.Ready())
        self._begin(self._accept())

    def _hand_over(self) -> None:
        """Give connections to the workers beside this one, and take theirs."""
        if self._giving.on or not (self.routing.has_siblings and self.server.connections_can_move):
            return
        spec = self.spec
        self.server.take_over(
            Taking(spec.handover_path, spec.incarnation, self.server.protocol_of_taken, self._turns.publish)
        )
        self._giving.on = True

    async def _accept(self) -> None:
        await quorum.wait(self.spec.segment.ring.seats, self.spec.index)
        for listener in self.spec.listeners:
            self.server.accept(listener, self._turns)

    def _on_link(self) -> None:
        try:
            while (message := messages.receive_to_worker(self.spec.link)) is not None:
                match message:
                    case messages.StopAccepting():
                        self._stop_accepting()
                    case messages.Drain():
                        self._drain()
                    case messages.Share():
                        self._begin(self._share())
                    case messages.Finish(seconds=seconds):
                        self._finish(seconds)
                    case messages.Release():
                        messages.send(self.spec.link, self.routing.release(message))
                    case messages.ReopenLogs():
                        self._reopen_logs()
                    case messages.ChangeLog(level=level, format=form):
                        logs.change(LogConfig(level=level, format=form))
        except messages.LinkClosed:
            # The supervisor is gone, and with it whoever repairs the table. PDEATHSIG has the same effect.
            os._exit(1)

    def _reopen_logs(self) -> None:
        if done := log_files.reopen():
            logger.info("log files opened anew: %s", ", ".join(done))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _say(self, message: messages.FromWorker) -> None:
        try:
            messages.send(self.spec.link, message)
        except messages.LinkClosed:
            os._exit(1)

    def _drain(self) -> None:
        """No new connections and no new sessions; those that are here go on."""
        if self.closing.on:
            return
        self.routing.router.stopping = self.closing.on = True
        self.server.close_listeners()
        self._begin(self._say_drained())

    async def _say_drained(self) -> None:
        await drained(self.server, self.routing)
        self._say(messages.Drained())

    async def _share(self) -> None:
        try:
            await self.routing.share()
            self._hand_over()
        except Exception as error:
            logger.exception("the sessions of this worker cannot be handed over to the table")
            self._say(messages.Shared(f"{type(error).__name__}: {error}"[:1000]))
        else:
            self._say(messages.Shared())

    def _finish(self, seconds: float) -> None:
        if self.closing.on and not self._stopping and (lost := cut(self.routing)) is not None:
            self._say(lost)
        self._end(seconds)

    def _stop_accepting(self) -> None:
        if self._stopping:
            return
        self._stopping = self.routing.router.stopping = self.closing.on = True
        self.server.stop_accepting()
        self._begin(self._say_quiet())

    async def _say_quiet(self) -> None:
        await self.server.quiet()
        self._say(messages.Quiet())

    def _on_terminate(self) -> None:
        self.stop_by_itself("SIGTERM")

    def stop_by_itself(self, reason: str) -> None:
        """This worker alone: what the supervisor would say in two steps, without waiting for siblings."""
        logger.info("%s: this worker stops", reason)
        self._stop_accepting()
        self._end(self.spec.server.timeouts.graceful_seconds)

    def _end(self, seconds: float) -> None:
        self.server.finish(seconds, patience_seconds=min(PATIENCE_SECONDS, seconds / 4))
        if not self.routing.router.ready and self._serving is not None:
            self._serving.cancel()  # a start-up may never end, and nothing of this worker is in use yet
