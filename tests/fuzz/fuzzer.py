"""Fuzzes one target in a process of its own: ``python -m tests.fuzz.fuzzer TARGET FOLDER RUNS SECONDS``.

New inputs go to the folder; what breaks the target goes to its folder of finds, and ends the process with a status
that is not 0. The last lines on stderr are libFuzzer's figures.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import sys
import time
import traceback
import warnings
from importlib import import_module

import atheris

from tests.fuzz import budget
from tests.fuzz.files import FINDS, SEEDS, seeds

BYTES_ALONE = 0.3
"""The share of changes that are made byte by byte where values can be changed too."""

FROM_A_SEED = 0.4
"""The share of changes that are made to a real object: what new ways lead through is soon none any more."""


def main(target: str, work: str, runs: str, seconds: str) -> None:
    """Does not return."""
    with atheris.instrument_imports(include=["device_agent", "upstream"]):
        module = import_module(f"tests.fuzz.{target}")
    from tests.fuzz.choosing import read_or_refused
    from tests.fuzz.mutation import MUTATORS

    # From here on: what a library warns of while it reads, it warns of because of what it reads.
    warnings.simplefilter("error")
    mutator, real = MUTATORS.get(target), list(seeds(target).values())

    def mutated(body: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < FROM_A_SEED:
            body = chance.choice(real)
        if mutator is not None and chance.random() > BYTES_ALONE:
            changed = mutator(body, most, chance)
            if changed is not None:
                return changed
        return bytes(atheris.Mutate(body, min(len(body) + 8, most)))

    finds = FINDS / target
    finds.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        work,
        str(SEEDS / target),
        f"-runs={runs}",
        f"-max_len={budget.INPUT_BYTES}",
        f"-timeout={budget.INPUT_SECONDS}",
        f"-rss_limit_mb={budget.MEMORY_MEBIBYTES}",
        f"-artifact_prefix={finds}/",
        "-print_final_stats=1",
    ]
    deadline, runs_done = time.monotonic() + float(seconds), itertools.count()

    def one(body: bytes) -> None:
        done = next(runs_done)
        # Not -max_total_time: libFuzzer reads the wall clock, which jumps.
        if time.monotonic() > deadline:
            sys.stderr.write(f"stat::number_of_executed_units: {done}\n")
            sys.stderr.flush()
            os._exit(0)
        try:
            read_or_refused(module.read, body)
        # Whatever it is: this is what is looked for.
        except BaseException:  # noqa: BLE001 - a target may even exit
            # Without libFuzzer, whose timer can end the process before it has written anything.
            signal.setitimer(signal.ITIMER_REAL, 0)
            (finds / f"crash-{hashlib.sha256(body).hexdigest()[:16]}").write_bytes(body)
            traceback.print_exc()
            sys.stderr.write(f"stat::number_of_executed_units: {done + 1}\n")
            sys.stderr.flush()
            os._exit(1)

    atheris.Setup(arguments, one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
