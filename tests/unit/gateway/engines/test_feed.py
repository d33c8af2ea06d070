"""gateway/engines/feed.py: where an engine begins that never carried anything."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.engines.context import Context
from gateway.engines.feed import Feed
from gateway.engines.report import Report

pytestmark = pytest.mark.timeout(120)


class Station:
    """Answers of a station, one for each question: a status, or the numbers of the events that it tells."""

    def __init__(self, *answers: int | list[int]) -> None:
        self.answers = deque(answers)
        self.asked: list[tuple[str, str]] = []

    @contextmanager
    def listening(self, place: Path) -> Iterator[None]:
        """Answer at a socket until the context is left."""
        station = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                (history,) = parse_qs(urlsplit(self.path).query)["history"]
                station.asked.append((history, self.headers.get("Last-Event-ID", "")))
                answer = station.answers.popleft()
                self.send_response(200 if isinstance(answer, list) else answer)
                self.end_headers()
                for number in answer if isinstance(answer, list) else ():
                    of = {"site": "lisbon", **({"origin": f"lisbon/00/events/{number}"} if number > 1 else {})}
                    told = json.dumps({"tag": "site/door", "data": {}, "_stamp": "", **of})
                    self.wfile.write(f"id: {number}\ndata: {told}\n\n".encode())

            def log_message(self, *_: object) -> None:
                """A test has its own words."""

        with ThreadingUnixStreamServer(str(place), Answering) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join(60)
                place.unlink()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Path(os.devnull).open("w") as nowhere:
        place = tmp_path / "api.sock"
        yield Context(
            name="out", opts={}, api=place, events=None, folder=tmp_path / "out", report=Report(nowhere.fileno())
        )


def first(context: Context, station: Station) -> list[str]:
    """The first batch that an engine gets, by the numbers of its events."""
    with station.listening(context.api):
        batch = next(Feed(context).batches(1))
    return [event.id for event in batch]


def test_a_first_question_that_fails_is_asked_again_and_nothing_old_is_carried(context: Context) -> None:
    station = Station(503, [7], [8])
    assert first(context, station) == ["8"]
    assert station.asked == [("1", ""), ("1", ""), ("0", "7")]


def test_all_that_comes_is_new_where_there_was_no_event_at_all(context: Context) -> None:
    station = Station([], [1])
    assert first(context, station) == ["1"]
    assert station.asked == [("1", ""), ("10000", "")]


def test_what_came_since_is_new_where_a_kill_came_before_the_first_was_carried(context: Context) -> None:
    assert first(context, Station([], [1])) == ["1"]
    station = Station([1, 2])
    assert first(context, station) == ["1"]
    assert station.asked == [("10000", "")]


def test_who_carried_something_before_goes_on_from_there(context: Context) -> None:
    context.folder.mkdir()
    (context.folder / "cursor").write_text("5\n")
    station = Station(503, [6])
    assert first(context, station) == ["6"]
    assert station.asked == [("0", "5")] * 2


def test_the_origin_of_an_event_comes_with_it_where_it_has_one(context: Context) -> None:
    context.folder.mkdir()
    (context.folder / "cursor").write_text("0\n")
    with Station([1, 2]).listening(context.api):
        origins = [event.origin for event in next(Feed(context).batches(2))]
    assert origins == ["", "lisbon/00/events/2"]
