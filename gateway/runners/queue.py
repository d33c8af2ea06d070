"""``queue``: lists of things to do, on the station's disk, in the shapes of Salt's runner."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import msgspec

from device_agent.errors import OutstationError, StationFailed, UsageInvalid
from device_agent.protocol.messages import encode_value
from gateway.calls.call import STOPPING, CallFailed, CallRequest
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

ITEMS: Final = 10_000
"""Most that one queue has."""

QUEUES: Final = 1000
ITEM_BYTES: Final = 64 * 1024
QUEUE_BYTES: Final = 16 * 1024 * 1024
"""Of all the items of one queue."""

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
RUNNERS: Final = "runners"
"""Where runners wait, unless another queue is named."""

_ADD = "INSERT OR IGNORE INTO queue_items (queue, item) VALUES (?, ?)"
_SIZE = "SELECT count(*), coalesce(sum(length(item)), 0) FROM queue_items WHERE queue = ?"
_FIRST = "SELECT id, item FROM queue_items WHERE queue = ? ORDER BY id LIMIT 1"
_DELETE = "DELETE FROM queue_items WHERE queue = ? AND item = ?"

_item = msgspec.msgpack.Decoder()

Items = str | dict[str, Any] | list[str | dict[str, Any]]


class QueueRunner:
    """The runner."""

    def __init__(self, *, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._calling = asyncio.Lock()
        self._putting = asyncio.Lock()
        """Two calls that put items in at the same time do not both count on the same room."""
        self._taking = asyncio.Lock()
        """Two calls that take items out at the same time do not take the same."""

    def functions(self) -> list[Function]:
        """What it has. What a queue of runners calls is judged when it is called, by who has it called."""
        return [
            Function("queue.insert", self.insert, again=True),
            Function("queue.delete", self.delete, again=True),
            Function("queue.pop", self.pop),
            Function("queue.list_queues", self.list_queues, need="view"),
            Function("queue.list_length", self.list_length, need="view"),
            Function("queue.list_items", self.list_items, need="view"),
            Function("queue.process_queue", self.process_queue),
            Function("queue.insert_runner", self.insert_runner, again=True),
            Function("queue.process_runner", self.process_runner, again=True),
        ]

    async def insert(self, _: Running, queue: str, items: Items, backend: str = "sqlite") -> bool | str:
        """Put items behind those of a queue.

        CLI example: ``outstation runner queue.insert recorders cam-1``
        """
        _check(queue, backend)
        wanted = items if isinstance(items, list) else [items]
        kept = [encode_value(item) for item in wanted]
        if any(len(item) > ITEM_BYTES for item in kept):
            raise CallFailed(f"an item has at most {ITEM_BYTES} bytes")
        async with self._putting:
            twice = [item for item, body in zip(wanted, kept, strict=True) if await self._has(queue, body)]
            known = {encode_value(item) for item in twice}
            await self._room_for(queue, set(kept) - known)
            await self._writer.commit([(_ADD, [(queue, body) for body in kept])])
        return f"Item(s) already exist in the queue: {twice}" if twice and len(twice) == len(wanted) else True

    async def delete(self, _: Running, queue: str, items: Items, backend: str = "sqlite") -> bool:
        """Take items out of a queue.

        CLI example: ``outstation runner queue.delete recorders cam-1``
        """
        _check(queue, backend)
        await self._writer.commit(
            _gone(queue, [encode_value(i) for i in (items if isinstance(items, list) else [items])])
        )
        return True

    async def list_queues(self, _: Running, backend: str = "sqlite") -> list[str]:
        """List the queues that have items.

        CLI example: ``outstation runner queue.list_queues``
        """
        _check(RUNNERS, backend)
        return await self._names()

    async def list_length(self, _: Running, queue: str, backend: str = "sqlite") -> int:
        """Say how many items a queue has.

        CLI example: ``outstation runner queue.list_length recorders``
        """
        _check(queue, backend)
        return await self._length(queue)

    async def list_items(self, _: Running, queue: str, backend: str = "sqlite") -> list[Any]:
        """List the items of a queue in their order.

        CLI example: ``outstation runner queue.list_items recorders``
        """
        _check(queue, backend)
        return [_item.decode(body) for body in await self._rows(queue, ITEMS)]

    async def pop(
        self, _: Running, queue: str, quantity: int | str = 1, backend: str = "sqlite", is_runner: bool = False
    ) -> list[Any]:
        """Take the first items out of a queue, ``all`` for every one.

        CLI example: ``outstation runner queue.pop recorders 5``
        """
        del is_runner  # in Salt it chooses how items were written, which is one way here
        _check(queue, backend)
        async with self._taking:
            taken = await self._rows(queue, _count(quantity))
            await self._writer.commit(_gone(queue, taken))
        return [_item.decode(body) for body in taken]

    async def process_queue(
        self, running: Running, queue: str, quantity: int | str = 1, backend: str = "sqlite", is_runner: bool = False
    ) -> dict[str, Any]:
        """Take the first items out of a queue and fire them as the event salt/queue/QUEUE/process, both or neither.

        CLI example: ``outstation runner queue.process_queue recorders all``
        """
        del is_runner
        _check(queue, backend)
        async with self._taking:
            taken = await self._rows(queue, _count(quantity))
            data = {"items": [_item.decode(body) for body in taken], "backend": backend, "queue": queue}
            await running.fire(f"salt/queue/{queue}/process", data, _gone(queue, taken))
        return data

    async def insert_runner(
        self,
        running: Running,
        fun: str,
        args: str | list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        queue: str = RUNNERS,
        backend: str = "sqlite",
    ) -> bool | str:
        """Put a runner into a queue, to be called by ``queue.process_runner``.

        CLI example: ``outstation runner queue.insert_runner event.send site/later``
        """
        given = args.split(",") if isinstance(args, str) else args or []
        return await self.insert(running, queue, {"fun": fun, "args": given, "kwargs": kwargs or {}}, backend)

    async def process_runner(
        self, running: Running, queue: str = RUNNERS, quantity: int | str = 1, backend: str = "sqlite"
    ) -> list[Any]:
        """Call the first runners of a queue, one after another.

        CLI example: ``outstation runner queue.process_runner quantity=all``
        """
        _check(queue, backend)
        found: list[Any] = []
        async with self._calling:
            for _ in range(_count(quantity)):
                rows = await self._reader.rows(_FIRST, (queue,))
                if not rows:
                    break
                number, body = rows[0]
                gone = _gone(queue, [bytes(body)])
                try:
                    # Under the number of the item: begun again after a kill it is not called twice.
                    found.append(await running.ended(_request(queue, _item.decode(body)), f"item {number}"))
                except (CallFailed, OutstationError) as error:
                    if isinstance(error, StationFailed) or getattr(error, "error_id", "") == STOPPING:
                        # It was not called: it is called another time, or when the station is back.
                        raise
                    # One that fails does not stop those behind it for ever.
                    await self._writer.commit(gone)
                    raise
                await self._writer.commit(gone)
        return found

    async def _rows(self, queue: str, most: int) -> list[bytes]:
        sql = "SELECT item FROM queue_items WHERE queue = ? ORDER BY id LIMIT ?"
        return [bytes(item) for (item,) in await self._reader.rows(sql, (queue, most))]

    async def _room_for(self, queue: str, fresh: set[bytes]) -> None:
        """Raises ``CallFailed`` where a queue has no room for these."""
        ((there, size),) = await self._reader.rows(_SIZE, (queue,))
        if there + len(fresh) > ITEMS:
            raise CallFailed(f"a queue has at most {ITEMS} items, and {queue} has {there}")
        if size + sum(map(len, fresh)) > QUEUE_BYTES:
            raise CallFailed(f"a queue has at most {QUEUE_BYTES} bytes, and {queue} has {size}")
        if fresh and not there and len(await self._names()) >= QUEUES:
            raise CallFailed(f"there are {QUEUES} queues, which is the most")

    async def _length(self, queue: str) -> int:
        ((count,),) = await self._reader.rows("SELECT count(*) FROM queue_items WHERE queue = ?", (queue,))
        return int(count)

    async def _has(self, queue: str, body: bytes) -> bool:
        return bool(await self._reader.rows("SELECT 1 FROM queue_items WHERE queue = ? AND item = ?", (queue, body)))

    async def _names(self) -> list[str]:
        return [name for (name,) in await self._reader.rows("SELECT DISTINCT queue FROM queue_items ORDER BY queue")]


def _request(queue: str, item: Any) -> CallRequest:
    if not isinstance(item, dict) or not isinstance(item.get("fun"), str):
        raise CallFailed(f"an item of {queue} is no runner: {str(item)[:80]}")
    return CallRequest(fun=item["fun"], arg=list(item.get("args", [])), kwarg=dict(item.get("kwargs", {})))


def _gone(queue: str, items: list[bytes]) -> list[Statement]:
    return [(_DELETE, [(queue, item) for item in items])]


def _count(quantity: int | str) -> int:
    if quantity == "all":
        return ITEMS
    if isinstance(quantity, str) and not quantity.isdecimal():
        raise UsageInvalid("this is no quantity", found=quantity[:40], allowed='a number, or "all"')
    return max(0, min(int(quantity), ITEMS))


def _check(queue: str, backend: str) -> None:
    if backend != "sqlite":
        raise UsageInvalid("there is no such backend of queues", found=backend[:40], allowed="sqlite")
    if not NAME.fullmatch(queue):
        raise UsageInvalid("this is no name of a queue", found=queue[:80], allowed="letters, digits, dots, - and _")
