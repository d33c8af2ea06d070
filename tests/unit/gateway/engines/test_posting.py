"""gateway/engines/posting.py: the status of an answer counts, whatever the rest of it does, and no secret is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from gateway.engines.carry import NotTaken, TryLater
from gateway.engines.posting import check_url, post
from gateway.returners.settings import WebhookSettings

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"


@contextmanager
def answering(answer: str) -> Iterator[str]:
    """The address of a server that says this to its first visitor."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with closing(server.accept()[0]) as line:
                line.recv(65_536)
                line.sendall(answer.encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/secret-path"
        thread.join(60)


@pytest.mark.parametrize(
    ("status", "ends"), [("400 Bad Request", NotTaken), ("503 Busy", TryLater), ("429 Too Many", TryLater)]
)
def test_a_status_stands_though_its_words_never_come(status: str, ends: type[Exception]) -> None:
    cut = f"HTTP/1.1 {status}\r\n{CHUNKED}this is no chunk\r\n"
    with answering(cut) as url, pytest.raises(ends, match=f"answers {status[:3]}$") as raised:
        post(url, b"{}", {}, 30.0)
    assert "secret-path" not in str(raised.value)


def test_what_was_taken_is_not_sent_again_because_the_answer_is_cut() -> None:
    with answering(f"HTTP/1.1 200 OK\r\n{CHUNKED}this is no chunk\r\n") as url:
        assert post(url, b"{}", {}, 30.0) == b""


def test_an_address_with_a_password_is_refused_and_not_told() -> None:
    url = "https://bob:hidden@example.net/in"
    for check in (check_url, lambda url: WebhookSettings(url=url)):
        with pytest.raises(ValueError, match="no user and password") as raised:
            check(url)
        assert "hidden" not in str(raised.value)
