"""A Gym-like server that sets up logging in one of the ways in which apps do; LOG_APP says how."""

from __future__ import annotations

import logging
import logging.config
import logging.handlers
import os
import queue
import signal

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from whole.apps import AssignId, seed, show

NAME = "LogResourcesServer___log"
FORMAT = "APP %(name)s: %(message)s"
FILE = os.environ.get("LOG_APP_FILE", "")
OWN_SIGNALS: list[int] = []

match os.environ.get("LOG_APP"):
    case "dict":  # disables every logger that exists, ours among them, and takes the root's handlers away
        handler = {"class": "logging.StreamHandler", "formatter": "app"}
        logging.config.dictConfig(
            {
                "version": 1,
                "formatters": {"app": {"format": FORMAT}},
                "handlers": {"console": handler},
                "root": {"level": "INFO", "handlers": ["console"]},
            }
        )
    case "basic":
        logging.basicConfig(force=True, format=FORMAT, level=logging.INFO)
    case "own":  # a handler of its own, on its own logger, that propagates
        stream = logging.StreamHandler()
        stream.setFormatter(logging.Formatter(FORMAT))
        logging.getLogger("app").addHandler(stream)
    case "none":  # nothing is left on the root
        logging.config.dictConfig({"version": 1, "root": {"handlers": []}})
    case "files":  # one as it is, one behind a queue
        plain = logging.FileHandler(FILE + ".plain", mode="w")
        behind: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        listener = logging.handlers.QueueListener(behind, logging.FileHandler(FILE + ".queued"))
        listener.start()
        logging.getLogger("app").addHandler(plain)
        logging.getLogger("app").addHandler(logging.handlers.QueueHandler(behind))
    case "signal":
        signal.signal(signal.SIGUSR1, lambda number, _: OWN_SIGNALS.append(number))

logger = logging.getLogger("app")


async def whoami(_request: Request) -> Response:
    """The pid of the worker."""
    return PlainTextResponse(str(os.getpid()))


async def say(request: Request) -> Response:
    """Log a text."""
    logger.warning("%s", request.query_params["text"])
    return PlainTextResponse(str(os.getpid()))


async def signals(_request: Request) -> Response:
    """How many signals the app's own handler has had."""
    return PlainTextResponse(str(len(OWN_SIGNALS)))


gym = Starlette(
    routes=[
        Route("/whoami", whoami),
        Route("/say", say),
        Route("/signals", signals),
        Route("/seed_session", seed, methods=["POST"]),
        Route("/show", show, methods=["GET", "POST"]),
    ],
    middleware=[Middleware(SessionMiddleware, secret_key=NAME, session_cookie=NAME), Middleware(AssignId)],
)
