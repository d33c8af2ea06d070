"""A program that keeps rows with the product's own store, and acknowledges each after its commit: traced by a test.

Its arguments are the store, the file of acknowledgements, and how many rows.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from device_agent.clock import Clock
from gateway.store.opening import open_store
from gateway.store.writer import Writer

TOGETHER = 3
CHECKPOINT_EVERY = 25
ROW_BYTES = 3000


async def keep(path: Path, acknowledgements: int, first: int, last: int) -> None:
    """Open the store, keep some rows, close it."""
    open_store(path, Clock())
    async with Writer(path) as writer:

        async def one(number: int) -> None:
            key = f"row-{number}"
            # Emptying the log is what the station does when secrets were overwritten: a checkpoint with a truncation.
            await writer.commit(
                [("INSERT INTO station VALUES (?, ?)", [(key, str(number) * (ROW_BYTES // len(str(number))))])],
                wipes=number % CHECKPOINT_EVERY == 0,
            )
            os.write(acknowledgements, f"{key}\n".encode())

        for number in range(first, last, TOGETHER):
            async with asyncio.TaskGroup() as group:
                for one_more in range(number, min(number + TOGETHER, last)):
                    group.create_task(one(one_more))


async def main() -> None:
    """Twice, so that a clean stop and a second start are in the trace."""
    path, rows = Path(sys.argv[1]), int(sys.argv[3])
    acknowledgements = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    await keep(path, acknowledgements, 0, rows * 2 // 3)
    await keep(path, acknowledgements, rows * 2 // 3, rows)


if __name__ == "__main__":
    asyncio.run(main())
