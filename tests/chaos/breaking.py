"""How each sort of fault begins, and how it is undone."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from tests.chaos.coordinator import Coordinator, Finding
from tests.chaos.expect import Watch
from tests.chaos.network import Network
from tests.chaos.plan import LINKS, Fault
from tests.chaos.plant import SITE, Plant
from tests.chaos.store_faults import StoreFault
from tests.peers.disk_faults import Fault as DiskFault
from tests.peers.disk_faults import no_descriptors, store_files

TICK_SECONDS = 0.1
BROKER_SECONDS = 5.0
CUT_SECONDS = 3.0
SCRIPT_SECONDS = 200.0
ANSWER_SECONDS = 60.0
NEED_A_GATEWAY = frozenset({"fill", "disk", "descriptors", "log", "rollback", "clone"})
LEFT = 8
"""Descriptors that are left to the gateway where it has too few."""


class Breaker:
    """Breaks things and mends them. ``late`` is told by how many seconds a fault took longer than it was to."""

    def __init__(
        self,
        plant: Plant,
        network: Network,
        coordinator: Coordinator,
        watch: Watch,
        late: Callable[[float], None],
        tell: Callable[[str], None],
    ) -> None:
        self._plant = plant
        self._network = network
        self._coordinator = coordinator
        self._watch = watch
        self._late = late
        self._tell = tell
        self._undoing: dict[Fault, ExitStack] = {}
        self._scripts = 0
        self.broker_kills: list[float] = []

    def begin(self, fault: Fault) -> None:
        """Break it."""
        undo = self._undoing[fault] = ExitStack()
        if fault.kind in NEED_A_GATEWAY:
            # Of a station that is about to start nothing is seen of these.
            self._late(self._wait(lambda: self._plant.answers(SITE), ANSWER_SECONDS))
        match fault.kind:
            case "kill":
                self._kill(fault, undo)
            case "cut" | "slow" | "names" | "ipv6":
                self._links(fault, undo)
            case "fill":
                undo.callback(self._plant.disk.free)
                self._plant.disk.fill()
            case "disk":
                state = self._plant.state_of(SITE)
                failing = DiskFault(self._plant.pid_of(SITE), fault.way, store_files(state))
                undo.callback(self._detach, failing)
                failing.begin()
            case "descriptors":
                undo.enter_context(no_descriptors(self._plant.pid_of(SITE), LEFT))
            case "log" | "rollback" | "clone":
                self._scripts += 1
                script = StoreFault(fault, self._plant, self._coordinator, self._watch, self._scripts, self._tell)
                undo.callback(self._end, script)

    def end(self, fault: Fault) -> None:
        """Mend it."""
        self._undoing.pop(fault).close()

    def failed(self, fault: Fault, error: Exception) -> None:
        """It could not be acted out, which the run has to say; what there is of it is mended at its end."""
        words = f"{fault}: {type(error).__name__}: {error}"
        self._watch.findings.append(Finding("script", "a fault could not be acted out", [words]))

    def _kill(self, fault: Fault, undo: ExitStack) -> None:
        plant = self._plant
        match fault.subject:
            case "broker":
                # The gateway ends with its broker, and is started again like any process that ended.
                self.broker_kills.append(time.monotonic())
                self._wait(plant.kill_broker, BROKER_SECONDS)
            case "swarm":
                plant.take_reports()
                plant.hold(f"swarm-{fault.way}")
                # It comes when its site lets it in.
                undo.callback(plant.renew_swarm, int(fault.way))
            case subject:
                name = SITE if subject == "gateway" else subject
                plant.hold(name)
                undo.callback(plant.let_go, name)

    def _links(self, fault: Fault, undo: ExitStack) -> None:
        network = self._network
        for link in LINKS[fault.subject]:
            match fault.kind, fault.way:
                case "cut", "down":
                    undo.callback(network.up, link)
                    network.down(link)
                case "cut", _:
                    network.hole(link)
                    undo.callback(network.fill_hole, link)
                case "slow", rate:
                    network.slow(link, int(rate))
                    undo.callback(network.fast, link)
                case "ipv6", _:
                    network.ipv6_alone(link)
                    undo.callback(network.ipv4_again, link)
                case _:
                    # Only a link that is made anew needs the name of its master.
                    undo.callback(self._plant.silence_names, silent=False)
                    self._plant.silence_names(silent=True)
                    timer = threading.Timer(CUT_SECONDS, network.up, [link])
                    undo.callback(timer.join)
                    network.down(link)
                    timer.start()

    def _end(self, script: StoreFault) -> None:
        """Wait until it is through."""
        script.end()
        self._late(self._wait(lambda: not script.runs, SCRIPT_SECONDS))

    def _detach(self, failing: DiskFault) -> None:
        """Let the process go. One that is busy takes its time: what comes next comes so much later."""
        begun = time.monotonic()
        # strace is killed before this is raised, and the kernel lets the process go then.
        with suppress(subprocess.TimeoutExpired):
            failing.end()
        self._late(time.monotonic() - begun)

    def _wait(self, probe: Callable[[], bool], seconds: float) -> float:
        """Wait for something while everything is kept up; for how long."""
        begun, pause = time.monotonic(), threading.Event()
        while not probe() and time.monotonic() - begun < seconds:
            self._plant.keep_up(time.monotonic())
            pause.wait(TICK_SECONDS)
        return time.monotonic() - begun
