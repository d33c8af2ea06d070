"""Publishes each event of the station to a stream of NATS JetStream, at least once, and has its word for each.

The extra ``nats`` brings the client. ``Nats-Msg-Id`` is the same for the same event: a stream drops what it has already
(https://docs.nats.io/using-nats/developer/develop_jetstream/model_deep_dive#message-deduplication).
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from gateway.engines.carry import NotTaken, TryLater, carry
from gateway.engines.context import current
from gateway.engines.feed import Feed, Heard

if TYPE_CHECKING:
    from nats.aio.client import Client

NO_STREAM: Final = "no stream takes this subject: nats stream add"
_odd = re.compile(r"[\s.*>\x00-\x1f]")


def __virtual__() -> bool | tuple[bool, str]:  # noqa: N807 - the name that Salt's loader asks for
    """Whether the client is installed."""
    try:
        import nats  # noqa: F401, PLC0415 - whether it is there is the question
    except ImportError:
        return False, "the NATS client is not installed: pip install 'outstation[nats]'"
    return True


def start(
    servers: str | list[str],
    tag: str = "*",
    subject: str = "outstation",
    credentials: str = "",
    batch: int = 100,
    timeout: float = 10.0,
    give_up_hours: float = 24.0,
) -> None:
    """Publish for ever to ``SUBJECT.SITE.TAG``, a word for each part of the tag. Raises ``ValueError``.

    ``credentials``: a file of NATS for a user.
    """
    if not subject or _odd.search(subject.replace(".", "")) or not 0.1 <= timeout <= 300:
        raise ValueError(f"subject is words with dots between, and timeout 0.1 to 300, not {subject!r} and {timeout}")
    with asyncio.Runner() as runner:
        line = _Line([servers] if isinstance(servers, str) else servers, credentials, timeout)

        def send(events: list[Heard]) -> None:
            runner.run(line.publish([(_subject(subject, each), each.key, _body(each)) for each in events]))

        carry(Feed(current(), tag), send, current().report, batch=batch, give_up_hours=give_up_hours)


def _subject(prefix: str, event: Heard) -> str:
    words = [word for word in event.tag.split("/") if word]
    return ".".join([prefix, *(_odd.sub("_", word) for word in (event.site or "station", *words))])


def _body(event: Heard) -> bytes:
    told = {"id": event.key, "tag": event.tag, "data": event.data, "_stamp": event.stamp, "site": event.site}
    return json.dumps({**told, "origin": event.origin} if event.origin else told).encode()


class _Line:
    """A connection, made when something is to be published, and again after a failure."""

    def __init__(self, servers: list[str], credentials: str, timeout: float) -> None:
        self._servers = servers
        self._credentials = credentials
        self._timeout = timeout
        self._client: Client | None = None

    async def publish(self, messages: list[tuple[str, str, bytes]]) -> None:
        """All of them, each with its confirmation. Raises ``TryLater`` and ``NotTaken``."""
        from nats import errors  # noqa: PLC0415 - an extra, which __virtual__ looked for
        from nats.js import errors as stream_errors  # noqa: PLC0415 - an extra, which __virtual__ looked for

        try:
            stream = (await self._connected()).jetstream(timeout=self._timeout)
            for subject, key, body in messages:
                await stream.publish(subject, body, headers={"Nats-Msg-Id": key})
        except errors.MaxPayloadError as error:
            raise NotTaken(f"nats: {error}") from None
        except stream_errors.NoStreamResponseError:
            raise TryLater(f"nats: {NO_STREAM}") from None
        except (errors.Error, OSError, TimeoutError) as error:
            await self._drop()
            raise TryLater(f"nats: {type(error).__name__}: {error}") from None

    async def _connected(self) -> Client:
        if self._client is not None and self._client.is_connected:
            return self._client
        await self._drop()
        import nats  # noqa: PLC0415 - an extra, which __virtual__ looked for

        options: dict[str, Any] = {"user_credentials": self._credentials} if self._credentials else {}
        async with asyncio.timeout(self._timeout):
            self._client = await nats.connect(
                self._servers,
                name="outstation",
                allow_reconnect=False,
                connect_timeout=max(1, int(self._timeout)),
                **options,
            )
        return self._client

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            await client.close()
