"""The link between the supervisor and a worker: one datagram of MessagePack for each message of the vocabulary.

The link is a SOCK_SEQPACKET pair, so messages keep their borders and the end of the other side is an empty read. Both
sides are non-blocking; a worker says few things in its life and answers what it is asked, a few bytes each, which the
socket's buffer holds.
"""

from __future__ import annotations

import socket

import msgspec

from supervisor.core.messages import (
    BootFailed,
    ChangeLog,
    Cut,
    Drain,
    Drained,
    Finish,
    FromWorker,
    Quiet,
    Ready,
    Release,
    Released,
    ReopenLogs,
    Share,
    Shared,
    StopAccepting,
    ToWorker,
)

__all__ = [
    "BootFailed",
    "ChangeLog",
    "Cut",
    "Drain",
    "Drained",
    "Finish",
    "FromWorker",
    "LinkClosed",
    "Quiet",
    "Ready",
    "Release",
    "Released",
    "ReopenLogs",
    "Share",
    "Shared",
    "StopAccepting",
    "ToWorker",
    "receive_from_worker",
    "receive_to_worker",
    "send",
]

MAX_TRACEBACK_CHARS = 50_000
"""A datagram has to fit the socket's send buffer, 208 KiB by default on Linux, also at 4 bytes for each character."""

MAX_DATAGRAM_BYTES = 256 * 1024

_encoder = msgspec.msgpack.Encoder()
_from_worker = msgspec.msgpack.Decoder(FromWorker)
_to_worker = msgspec.msgpack.Decoder(ToWorker)


class LinkClosed(Exception):
    """The other side has closed its end, or is gone."""


def send(link: socket.socket, message: FromWorker | ToWorker) -> bool:
    """Send one message without waiting.

    Returns:
        False when the other side has not read for so long that its buffer is full.

    Raises:
        LinkClosed: the other side is gone.

    """
    if isinstance(message, BootFailed) and len(message.traceback) > MAX_TRACEBACK_CHARS:
        message = BootFailed("[...]\n" + message.traceback[-MAX_TRACEBACK_CHARS:])  # the error stands at the end
    try:
        link.send(_encoder.encode(message), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except (BrokenPipeError, ConnectionResetError):
        raise LinkClosed from None
    return True


def _receive(link: socket.socket) -> bytes | None:
    try:
        data = link.recv(MAX_DATAGRAM_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        raise LinkClosed from None
    if not data:
        raise LinkClosed
    return data


def receive_from_worker(link: socket.socket) -> FromWorker | None:
    """The worker's next message, or None when there is none yet.

    Raises:
        LinkClosed: the worker has closed its end and everything it sent is read.
        msgspec.DecodeError: something that is none of the messages.

    """
    data = _receive(link)
    return None if data is None else _from_worker.decode(data)


def receive_to_worker(link: socket.socket) -> ToWorker | None:
    """The supervisor's next message, or None when there is none yet.

    Raises:
        LinkClosed: the supervisor is gone.
        msgspec.DecodeError: something that is none of the messages.

    """
    data = _receive(link)
    return None if data is None else _to_worker.decode(data)
