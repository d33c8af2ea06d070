"""A TCP line to a master that can hold back what the master says, while what the gateway says still arrives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

PIECE_BYTES = 64 * 1024


class HeldLine:
    """Carries connections to ``address`` until the context ends."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        self._far = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._dropped: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.address = "tcp://{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A socket that another thread waits on is shut down first: closing it alone would wake nobody.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def hold(self) -> None:
        """From now on nothing that the master says arrives."""
        self._flows.clear()

    def cut(self) -> None:
        """End all connections. What was held back never arrives; new connections are carried again."""
        with self._lock:
            ends, self._ends = self._ends, set()
            self._dropped |= ends
        self._flows.set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _run(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, name="held-line", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(self._far)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._ends |= {near, far}
            self._run(self._carry, near, far, False)
            self._run(self._carry, far, near, True)

    def _carry(self, source: socket.socket, sink: socket.socket, from_master: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if from_master:
                    self._flows.wait()
                if source in self._dropped:
                    break
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()
