"""An HTTP server of a test's own: it keeps what it is sent, and answers with the statuses it is told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.peers.broker import free_port


@dataclass(frozen=True)
class Sent:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int


@dataclass
class HttpPeer:
    """What came, in its order; ``statuses`` are the next answers, after which all is taken."""

    port: int
    sent: list[Sent] = field(default_factory=list)
    statuses: deque[int] = field(default_factory=deque)
    answer: bytes = b"{}"

    def taken(self) -> list[Sent]:
        """What was answered with 200."""
        return [each for each in list(self.sent) if each.status == 200]

    def url(self, path: str = "/") -> str:
        """An address here."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def http_peer(port: int | None = None) -> Iterator[HttpPeer]:
    """Serve until the context is left."""
    peer = HttpPeer(port or free_port())

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = peer.statuses.popleft() if peer.statuses else 200
            peer.sent.append(Sent(self.command, self.path, dict(self.headers), body, status))
            self.send_response(status)
            self.send_header("Content-Length", str(len(peer.answer)))
            self.end_headers()
            self.wfile.write(peer.answer)

        do_GET = do_PUT = do_POST  # noqa: N815 - the library looks for these names

        def log_message(self, *_: object) -> None:
            """A test has its own words."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", peer.port), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield peer
        finally:
            server.shutdown()
            thread.join(60)
