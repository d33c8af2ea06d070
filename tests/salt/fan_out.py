"""One job of a stock Salt master for many devices: by a gateway, by a bare client, and in stock Salt's own way.

    python -m tests.salt.fan_out [--devices N] [--proxies N[,N...]] [--repeat K] [--json]

One master with its usual settings, and three who answer it: a gateway with a real broker and simulated devices; a
syndic that answers at once and does nothing else; a deltaproxy of Salt with devices of the kind dummy.

It says whether each aim is met, and fails for answers that are missing, not for an aim that is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gateway.bench.group_usage import group_usage
from tests.peers import salt_bare, salt_daemon, salt_delta
from tests.peers.salt_aims import DELTAPROXY, Aim, aims, missing
from tests.peers.salt_ear import LISTENS
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_release import FOLDER, NEWEST, PROGRAM
from tests.peers.salt_rounds import BARE, OURS, Contender, Round, as_json, heard, table
from tests.peers.salt_site import NAME, salt_site
from tests.peers.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EAR = ROOT / "tests" / "peers" / "salt_ear.py"
SECONDS = 600.0
"""Most that anything may take, the start of a deltaproxy included."""

TIMEOUT = 90
"""``salt -t``: no device of a working contender takes so long."""

AS_DOCUMENTED: dict[str, Any] = {
    "order_masters": True,
    "syndic_wait": 2,
    "timeout": 15,
    "gather_job_timeout": 10,
    "worker_threads": 5,
    "loop_interval": 60,
}
"""docs/salt.md, section 1; what is not named there is Salt's default."""

QUIET_SHARE = 0.1
"""Of a processor: who uses no more is quiet."""

QUIET_LOOKS = 20
BEHIND_SECONDS = 10.0
WARM_TIMEOUT = 20
PSS_FIELD = "Pss:"


class Unfit(Exception):
    """There is no figure: what was missing."""


@dataclass
class Measuring:
    """A master, and what is heard on its bus."""

    master: SaltMaster
    ear: Path

    def lines(self, since: int) -> list[str]:
        """What was on the bus after so many lines."""
        return self.ear.read_text(encoding="utf-8").splitlines()[since:]

    def round(self, target: str, devices: int, groups: Sequence[int], waits: int = TIMEOUT) -> Round:
        """One job."""
        quiet([self.master.group, *groups])
        since = len(self.lines(0))
        master, own = (group_usage([self.master.group]), group_usage(groups))
        begun = time.monotonic()
        self.master.salt("-t", str(waits), target, "test.ping")
        ended = time.monotonic()
        master_used, own_used = (group_usage([self.master.group]).since(master), group_usage(groups).since(own))
        # Who listens may be some events behind.
        late = ended + BEHIND_SECONDS
        wait(lambda: len(heard(self.lines(since))[1]) >= devices or time.monotonic() > late, "the last answer is heard")
        published, answers = heard(self.lines(since))
        last = max(answers.values(), default=ended)
        return Round(
            answers=len(answers),
            wall=last - begun,
            answering=last - published,
            command=ended - begun,
            master_cpu=master_used.cpu_seconds,
            own_cpu=own_used.cpu_seconds,
        )

    def whole(self, name: str, target: str, devices: int, groups: Sequence[int]) -> Round:
        """One job that every device has to answer. Raises ``Unfit``."""
        found = self.round(target, devices, groups)
        if found.answers != devices:
            raise Unfit(f"{name}: {found.answers} of {devices} devices answered; {self.master.told()}")
        return found


def quiet(groups: Sequence[int]) -> None:
    """Return when these process groups have little to do."""
    looks: list[tuple[float, float]] = []

    def little() -> bool:
        looks.append((time.monotonic(), group_usage(groups).cpu_seconds))
        if len(looks) <= QUIET_LOOKS:
            return False
        (before, had), (now, has) = looks[-1 - QUIET_LOOKS], looks[-1]
        return has - had <= QUIET_SHARE * (now - before)

    wait(little, "everybody is quiet")


def wait(probe: Callable[[], object], what: str) -> None:
    """Wait until the probe's answer is true. Raises ``Unfit`` when it takes too long."""
    try:
        asyncio.run(until(probe, SECONDS, what))
    except AssertionError as error:
        raise Unfit(str(error)) from None


def pss(groups: Sequence[int]) -> int:
    """Bytes of memory of these process groups; what several processes share is counted once."""
    wanted, total = set(groups), 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            group = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[2])
            told = (folder / "smaps_rollup").read_text() if group in wanted else ""
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in told.splitlines() if line.startswith(PSS_FIELD))
    return total


@contextmanager
def measuring(programs: Path) -> Iterator[Measuring]:
    """A master that lets the contenders in, and somebody who listens to its bus."""
    with ExitStack() as stack:
        master = SaltMaster(programs, **AS_DOCUMENTED)
        signs = master.folder / "signs"
        signs.write_text("".join(f"{name}\n" for name in (salt_bare.NAME, salt_delta.CONTROL, f"{salt_delta.PREFIX}*")))
        signs.chmod(0o600)
        master.settings["autosign_file"] = str(signs)
        stack.enter_context(master)
        file = master.folder / "heard"
        out = stack.enter_context(file.open("wb"))
        words = [str(programs / "python"), "-W", "ignore", str(EAR), str(master.folder / "master")]
        stack.enter_context(running(words, out))
        found = Measuring(master, file)
        wait(lambda: any(LISTENS in line for line in found.lines(0)), "somebody listens to the master's bus")
        yield found


@contextmanager
def running(words: Sequence[str], out: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which ends with the block."""
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def bare_client(bed: Measuring, devices: int) -> Iterator[int]:
    """A bare syndic that is signed in; its process group."""
    folder = bed.master.folder / "bare"
    folder.mkdir()
    said = folder / "said"
    words = [sys.executable, "-m", salt_bare.__name__, bed.master.address]
    words += ["--devices", str(devices), "--folder", str(folder)]
    with said.open("wb") as out, running(words, out) as process:

        def ready() -> bool:
            if process.poll() is not None:
                raise Unfit(f"the bare client ended: {said.read_text()}")
            return salt_bare.READY in said.read_text()

        wait(ready, "the bare client hears the master")
        yield process.pid


def in_turns(bed: Measuring, devices: int, repeat: int) -> dict[str, Contender]:
    """The gateway and the bare client, one job each, as often as said; each after one to warm up."""
    found = {name: Contender(devices) for name in (OURS, BARE)}
    with salt_site(bed.master, devices=devices) as site, bare_client(bed, devices) as bare:
        groups = {OURS: [site.system.children[NAME].process.pid], BARE: [bare]}
        targets = {OURS: "cam-*", BARE: f"{salt_bare.PREFIX}*"}
        for number in range(repeat + 1):
            for name, one in found.items():
                turn = bed.whole(name, targets[name], devices, groups[name])
                one.rounds += [turn] if number else []
        for name, one in found.items():
            one.memory = pss(groups[name])
    return found


def of_deltaproxy(bed: Measuring, programs: Path, devices: int, repeat: int) -> Contender:
    """A deltaproxy with so many devices: what it managed, which may be no answer at all."""
    found = Contender(devices)
    begun = time.monotonic()
    proxy = salt_delta.DeltaProxy(programs, bed.master, devices)
    with proxy:
        target = f"{salt_delta.PREFIX}*"

        # It has shown all keys long before it hears what is published.
        while bed.round(target, devices, [proxy.group], WARM_TIMEOUT).answers < devices:
            if time.monotonic() > begun + SECONDS:
                raise Unfit(f"not all of them had answered after {SECONDS:.0f} s")
        found.start = round(time.monotonic() - begun, 1)
        found.rounds += [bed.round(target, devices, [proxy.group]) for _ in range(repeat)]
        found.memory = pss([proxy.group])
    # The next one has other keys under the same names.
    for names in (target, salt_delta.CONTROL):
        bed.master.key("--delete", names)
    return found


def measure(devices: int, proxies: Sequence[int], repeat: int) -> dict[str, Contender]:
    """All of them at one master. Raises ``Unfit`` when a device of the gateway or of the bare client is missing."""
    subprocess.run([str(PROGRAM), sys.executable, str(FOLDER), NEWEST], check=True)
    programs = FOLDER / NEWEST / "bin"
    with measuring(programs) as bed:
        found = in_turns(bed, devices, repeat)
        for count in proxies:
            try:
                found[f"{DELTAPROXY} {count}"] = of_deltaproxy(bed, programs, count, repeat)
            except (Unfit, AssertionError) as error:
                sys.stderr.write(f"deltaproxy with {count} devices: {str(error)[:2000]}\n")
                break
        return found


def main() -> None:
    """Measure, print, and say whether the aims are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=1000, metavar="N")
    parser.add_argument("--proxies", default="25", metavar="N[,N...]", help="devices of a deltaproxy; empty: none")
    parser.add_argument("--repeat", type=int, default=3, metavar="K")
    parser.add_argument("--json", action="store_true")
    typed = parser.parse_args()
    # What was started is stopped also when this is told to stop.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    salt_daemon.SECONDS = SECONDS
    proxies = [int(count) for count in typed.proxies.split(",") if count]
    try:
        found = measure(typed.devices, proxies, typed.repeat)
    except Unfit as why:
        sys.exit(f"no figures: {why}")
    held = aims(found)
    said = [as_json(found), *(aim.as_json() for aim in held)] if typed.json else [table(found), *map(Aim.words, held)]
    sys.stdout.write("\n".join(said) + "\n")
    if lacking := missing(found, proxies):
        sys.exit(f"answers are missing: {'; '.join(lacking)}")


if __name__ == "__main__":
    main()
