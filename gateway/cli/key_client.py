"""The client's side of the noun ``keys``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gateway.cli.client import PAGE, StationClient
from gateway.cli.key_views import (
    DoorsView,
    ExpectedKeyList,
    ExpectedKeyView,
    JoinTokenList,
    JoinTokenView,
    KeyPage,
    KeyView,
)

EXPECTED_AT_ONCE = 2000
"""Entries of a list in one request; all of the longest fit one."""


class KeyClient:
    """What a station is asked about keys."""

    def __init__(self, client: StationClient) -> None:
        self._client = client

    def pages(self, query: Mapping[str, Any]) -> Iterator[KeyPage]:
        """Keys, page by page; the first page has the station's own."""
        after: str | None = None
        while True:
            page = self._client.ask("GET", "/keys", KeyPage, query={**query, "limit": PAGE, "after": after})
            yield page
            after = page.next
            if after is None:
                return

    def find(self, name: str, kind: str | None) -> list[KeyView]:
        """The keys that a name, a did, a serial number or a fingerprint means."""
        return [key for page in self.pages({"name": name, "kind": kind}) for key in page.keys]

    def decide(self, name: str, verdict: str, body: Mapping[str, Any]) -> KeyPage:
        """``accept``, ``reject`` or ``revoke``; what changed."""
        return self._client.ask("POST", f"/keys/{quote(name, safe='')}/{verdict}", KeyPage, body=body)

    def matching(self, serial: str) -> list[KeyView]:
        """Devices in the open join window that claim such a serial number."""
        return self._client.ask("GET", "/keys/matching", KeyPage, query={"serial": serial}).keys

    def accept_matching(self, serial: str, dids: Sequence[str], name: str | None) -> KeyPage:
        """Let these of them in."""
        body = {"serial": serial, "dids": list(dids), "name": name}
        return self._client.ask("POST", "/keys/matching", KeyPage, body=body)

    def expected(self) -> list[ExpectedKeyView]:
        """Keys that are expected."""
        return self._client.ask("GET", "/keys/expected", ExpectedKeyList).expected

    def expect(self, listed: Sequence[tuple[str, str]]) -> Iterator[KeyPage]:
        """Expect keys; who waited already and is in now."""
        for start in range(0, len(listed), EXPECTED_AT_ONCE):
            entries = [{"key": key, "name": name} for key, name in listed[start : start + EXPECTED_AT_ONCE]]
            yield self._client.ask("POST", "/keys/expected", KeyPage, body={"keys": entries})

    def window(self) -> DoorsView:
        """The join window."""
        return self._client.ask("GET", "/keys/window", DoorsView)

    def open_window(self, terms: Mapping[str, Any]) -> DoorsView:
        """Open it."""
        return self._client.ask("POST", "/keys/window/open", DoorsView, body=terms)

    def close_window(self) -> DoorsView:
        """Close it."""
        return self._client.ask("POST", "/keys/window/close", DoorsView, body={})

    def tokens(self) -> list[JoinTokenView]:
        """Join tokens, without their text."""
        return self._client.ask("GET", "/keys/tokens", JoinTokenList).tokens

    def new_tokens(self, wish: Mapping[str, Any]) -> list[JoinTokenView]:
        """Make join tokens."""
        return self._client.ask("POST", "/keys/tokens", JoinTokenList, body=wish).tokens

    def revoke_token(self, token: str) -> JoinTokenView:
        """End a join token."""
        return self._client.ask("POST", f"/keys/tokens/{quote(token, safe='')}/revoke", JoinTokenView, body={})
