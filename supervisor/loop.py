"""The supervisor's loop: waits for whatever comes first, tells the fleet, does what the fleet says. It never blocks.

Deaths come before everything else of one wake-up: a row turns dead before a message is read or a timer judged. Messages
come before timers, so that a worker which has answered while the machine was paused is not killed for being late.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import DecodeError

from shmclaims import RingFull
from supervisor import orders
from supervisor.configs import Configs
from supervisor.control import Control, Reply
from supervisor.core import effects, events
from supervisor.core.effects import Effect
from supervisor.core.events import Event, Worker
from supervisor.core.fleet import Fleet
from supervisor.core.worker_state import IllegalStep
from supervisor.listeners import Listeners
from supervisor.logs import files as log_files
from supervisor.logs import lines as logs
from supervisor.notify import Announcer
from supervisor.processes import children, messages
from supervisor.processes.reaping import Reaper
from supervisor.processes.signals import Signals
from supervisor.processes.spawn import Child
from supervisor.processes.watching import Watch
from supervisor.releases import Releases
from supervisor.runtime_dir import RuntimeDir
from supervisor.segments import Segments
from supervisor.translating import event_of, log

logger = logging.getLogger("gym_supervise.supervisor")


class Loop:
    """Runs a service until its end.

    Args:
        fleet: decides.
        segments, reaper, signals, runtime: what it watches and acts on.
        listeners: the public sockets of each server.
        configs: the one in force and the one that is tried out.
        spawn: forks a worker; raises OSError or RuntimeError.
        guardian: a pidfd, readable when the guardian is gone.
        announcer: tells the service manager.

    """

    def __init__(
        self,
        *,
        fleet: Fleet,
        segments: Segments,
        reaper: Reaper,
        signals: Signals,
        runtime: RuntimeDir,
        listeners: Mapping[str, Listeners],
        configs: Configs,
        spawn: Callable[[Worker, effects.Spawn], Child],
        guardian: int,
        identity: Mapping[str, Any],
        announcer: Announcer,
    ) -> None:
        self._fleet = fleet
        self._segments = segments
        self._reaper = reaper
        self._signals = signals
        self._runtime = runtime
        self._listeners = listeners
        self._configs = configs
        self._spawn = spawn
        self._guardian: int | None = guardian
        self._identity = identity
        self._stderr = log_files.StandardError()
        self._announcer = announcer
        self._control = Control(runtime.control_path, self._answer)
        self._releases = Releases(segments, self._send)
        self._orders = orders.Orders(configs, self._put)
        self._watch = Watch(segments, lambda: reaper.live, configs)
        self._epoll = select.epoll()
        for descriptor in (signals.fileno(), guardian, self._control.fileno()):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._pidfds: dict[int, Child] = {}
        self._links: dict[int, Child] = {}
        self._queue: deque[Event] = deque()
        self._outcomes: deque[Event] = deque()  # of effects: told to the fleet before anything else
        self._now = time.monotonic()

    def run(self) -> int:
        """Serve until the fleet says that it is over; returns the exit status."""
        self._put(events.Started())
        self._handle_queue()
        self._announcer.step(self._now)
        while self._fleet.exit_status is None:
            ready = self._wait()
            self._now = time.monotonic()
            for descriptor in ready:
                if descriptor in self._pidfds:
                    self._look_for_death(self._pidfds[descriptor])
            for descriptor in ready:
                self._read(descriptor)
            self._put(*map(events.WorkerReaped, self._reaper.step(self._now)))
            self._put(*self._segments.step(self._now))
            self._put(*self._watch.step(self._now))
            self._releases.step(self._now)
            self._handle_queue()
            if (due := self._fleet.next_timer(self._now)) is not None and due <= self._now:
                self._put(events.Tick())
                self._handle_queue()
            self._orders.step()
            self._announcer.step(self._now)
        _, stuck = children.sweep()
        if stuck:
            logger.error("killed processes are still there: %s", sorted(stuck))
        return self._fleet.exit_status

    def close(self) -> None:
        """Close what belongs to the loop alone."""
        self._control.close()
        self._epoll.close()

    # Waiting

    def _wait(self) -> list[int]:
        times = [
            self._segments.next_timer(),
            self._fleet.next_timer(self._now),
            self._reaper.next_timer(),
            self._control.step(self._now),
            self._releases.next_timer(),
            self._watch.next_timer(),
            self._announcer.next_timer(),
        ]
        due = min(when for when in times if when is not None)
        seconds = max(due - time.monotonic(), 0.0)
        return [descriptor for descriptor, _ in self._epoll.poll(seconds)]

    # What has happened

    def _read(self, descriptor: int) -> None:
        if descriptor in self._links:
            self._read_link(self._links[descriptor])
        elif descriptor == self._signals.fileno():
            for asked in self._signals.read():
                if isinstance(asked, events.ReopenAsked):
                    self._reopen_logs(asked.origin)
                else:
                    self._put(asked)
        elif descriptor == self._guardian:
            self._epoll.unregister(descriptor)
            self._guardian = None
            self._put(events.GuardianDied())
        elif descriptor == self._control.fileno():
            self._control.handle(self._now)

    def _look_for_death(self, child: Child) -> None:
        died = self._reaper.look(child, self._now)
        if died is None:
            return
        self._read_link(child)  # its last words
        self._epoll.unregister(child.pidfd)
        del self._pidfds[child.pidfd]
        self._stop_reading(child)
        self._runtime.remove_private_sockets(child.worker.server, child.worker.incarnation)
        self._releases.lost(child.worker)
        self._put(died)

    def _read_link(self, child: Child) -> None:
        try:
            while (message := messages.receive_from_worker(child.link)) is not None:
                if isinstance(message, messages.Released):
                    self._releases.answered(child.worker, message)
                else:
                    self._put(event_of(child.worker, message))
        except messages.LinkClosed:
            self._stop_reading(child)
        except DecodeError as error:
            logger.warning("%s: worker %d sent something unknown: %s", child.worker.server, child.worker.index, error)
            self._stop_reading(child)

    def _stop_reading(self, child: Child) -> None:
        if self._links.pop(child.link.fileno(), None) is not None:
            self._epoll.unregister(child.link.fileno())

    def _reopen_logs(self, origin: str) -> None:
        live = list(self._reaper.live)
        logger.info("%s: log files are opened anew, here and in %d workers", origin, len(live))
        for path in log_files.reopen():
            logger.info("log file opened anew: %s", path)
        if (fate := self._stderr.fate()) is not None:
            logger.warning("%s", fate)
        for worker in live:
            self._send(worker, messages.ReopenLogs())

    def _answer(self, request: Mapping[str, Any], reply: Reply) -> Mapping[str, Any] | None:
        match request.get("command"):
            case "ping":
                return {"ok": True, **self._identity}
            case "stop":
                self._put(events.StopCommand())
                return {"ok": True, "pid": os.getpid()}
            case "release":
                return self._releases.ask(request, reply, self._now)
            case command if command in orders.COMMANDS:
                return self._orders.ask(request, reply)
            case other:
                return {"ok": False, "error": f"command {other!r:.80} is not available in this version"}

    # What is to be done

    def _put(self, *happened: Event) -> None:
        self._queue.extend(happened)

    def _handle_queue(self) -> None:
        while self._queue or self._outcomes:
            event = (self._outcomes or self._queue).popleft()
            try:
                decided = self._fleet.handle(event, self._now)
            except IllegalStep as error:
                logger.warning("ignored: %s", error)
                continue
            for effect in decided:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.Log():
                log(effect)
            case effects.Spawn():
                self._outcomes.append(self._start_worker(effect))
            case effects.Send(worker=worker, message=message):
                self._send(worker, message)
            case effects.Terminate(worker=worker):
                self._signal(worker, signal.SIGTERM)
            case effects.Kill(worker=worker, reason=reason):
                if worker in self._reaper.live:
                    self._segments.note_reason(worker, reason)
                self._signal(worker, signal.SIGKILL)
            case effects.KillAll():
                self._reaper.kill_all(self._now)
            case effects.ShowSeat():
                self._segments.show_seat(effect)
            case effects.ShowRow(worker=worker):
                if worker in self._reaper.live:
                    self._segments.show_row(effect)
            case effects.CloseListeners(server=server):
                self._listeners[server].close()
            case effects.ReadConfig():
                self._outcomes.append(self._configs.read())
            case effects.CommitConfig():
                self._commit_config()
            case effects.DropConfig():
                self._configs.drop()
            case effects.Tell():
                self._orders.tell(effect)
            case effects.Exit():
                pass  # the fleet keeps the status

    def _commit_config(self) -> None:
        before, config = self._configs.current, self._configs.commit()
        self._segments.adopt(config.servers)
        for warning in config.warnings:
            logger.warning("%s: %s", config.source, warning)
        if config.log != before.log:
            logs.change(config.log)
            for worker in self._reaper.live:
                self._send(worker, messages.ChangeLog(config.log.level, config.log.format))

    def _start_worker(self, effect: effects.Spawn) -> events.Spawned | events.SpawnFailed:
        server, index, key = effect.server, effect.index, effect.key
        for child in list(self._reaper.live.values()):
            self._look_for_death(child)
        try:
            worker = self._segments.register(server, index)
        except RingFull as error:
            return events.SpawnFailed(server, index, str(error), key)
        try:
            child = self._spawn(worker, effect)
        except (OSError, RuntimeError) as error:
            self._segments.mark_gone(worker)
            return events.SpawnFailed(server, index, str(error), key)
        self._segments.set_pid(worker, child.pid)
        self._reaper.add(child)
        self._pidfds[child.pidfd] = self._links[child.link.fileno()] = child
        for descriptor in (child.pidfd, child.link.fileno()):
            self._epoll.register(descriptor, select.EPOLLIN)
        return events.Spawned(worker, child.pid, key)

    def _send(self, worker: Worker, message: messages.ToWorker) -> bool:
        child = self._reaper.live.get(worker)
        if child is None:
            return False
        try:
            if messages.send(child.link, message):
                return True
            logger.warning("%s: worker %d does not read what it is told", worker.server, worker.index)
        except messages.LinkClosed:
            logger.debug("%s: worker %d has closed its link", worker.server, worker.index)
        return False

    def _signal(self, worker: Worker, number: signal.Signals) -> None:
        if (child := self._reaper.live.get(worker)) is not None:
            child.signal(number)
