"""What orchestrations need of a station.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from typing import Final

from device_agent.clock import Clock
from gateway.call_rooms import CallRooms
from gateway.config import StationSettings
from gateway.files.files import Files
from gateway.orchestrate.book import OrchestrationBook
from gateway.orchestrate.compiling import Compiler
from gateway.orchestrate.orchestrator import Orchestrator
from gateway.orchestrate.waits import Waits
from gateway.render import Renderer
from gateway.rooms import Rooms
from gateway.runners.state import StateRunner

BEHIND_THE_NAME: Final = "_master"
"""Salt's own: the results of an orchestration stand under the name of the master with this."""


def state_runner(
    rooms: Rooms, settings: StationSettings, clock: Clock, own: CallRooms, files: Files, renderer: Renderer
) -> StateRunner:
    """The runner ``state`` of a station."""
    device = f"{settings.name}{BEHIND_THE_NAME}"
    orchestrator = Orchestrator(
        device=device,
        compiler=Compiler(files, renderer, device),
        book=OrchestrationBook(writer=rooms.writer, reader=rooms.reader, clock=clock),
        waits=Waits(bus=rooms.bus, reader=rooms.reader, metrics=rooms.metrics, clock=clock),
        clock=clock,
        # Beside the results there are their names, and what wraps them.
        most_bytes=settings.calls.result_bytes // 2,
    )
    return StateRunner(orchestrator=orchestrator, acceptance=rooms.acceptance, jobs=own.jobs)
