"""Other ways to share a port among workers, each in front of uvicorn: what the product's own way is compared with.

    python -m benchmarks.servers.listeners reuseport|steered PORT WORKERS

reuseport   a listener of its own for each worker: the kernel hashes connections over them
steered     the same, and a classic BPF program chooses by chance among the workers that were there at its loading
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import struct
import sys
from pathlib import Path

import uvicorn

from benchmarks.harness.processes import Kept, free_port
from benchmarks.servers.variant import KEEP_ALIVE_SECONDS, Variant, answers

# linux/filter.h and linux/bpf_common.h; SO_ATTACH_REUSEPORT_CBPF is not in Python's socket module.
SO_ATTACH_REUSEPORT_CBPF = 51
BPF_LD_W_ABS = 0x20
BPF_ALU_MOD_K = 0x94
BPF_RET_A = 0x16
SKF_AD_RANDOM = 0xFFFFF000 + 56
_FILTER = struct.Struct("=HBBI")


def other_listeners(folder: Path, mode: str, *, workers: int) -> Variant:
    """Serve the tiny app that way."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.servers.listeners", mode, str(port), str(workers)]
    kept = Kept(command, folder / f"{mode}.log")
    try:
        kept.wait_for(lambda: len(kept.pids()) > workers and answers(port), mode)
    except BaseException:
        kept.stop()
        raise
    return Variant(mode, port, [kept])


def main(mode: str, port: int, workers: int) -> None:
    """Open a listener for each worker, fork, wait."""
    listeners = [_listen(port) for _ in range(workers)]
    if mode == "steered":
        _steer(listeners[0], workers)
    for listener in listeners:
        if os.fork() == 0:
            for other in listeners:
                if other is not listener:
                    other.close()
            _serve(listener)
            os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pause()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(4096)
    return listener


def _steer(listener: socket.socket, workers: int) -> None:
    """Return a random number below `workers`: the index of the listener, in the order of their binds."""
    program = b"".join(
        (
            _FILTER.pack(BPF_LD_W_ABS, 0, 0, SKF_AD_RANDOM),
            _FILTER.pack(BPF_ALU_MOD_K, 0, 0, workers),
            _FILTER.pack(BPF_RET_A, 0, 0, 0),
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // _FILTER.size, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, fprog)


def _serve(listener: socket.socket) -> None:
    from benchmarks.servers import tiny  # after the fork: it notes its pid

    config = uvicorn.Config(
        tiny.app, access_log=False, log_level="warning", lifespan="off", timeout_keep_alive=KEEP_ALIVE_SECONDS
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
