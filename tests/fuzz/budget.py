"""How far each family of readers is fuzzed by ``make fuzz``, and what one input may cost."""

from __future__ import annotations

from typing import Final

RUNS: Final = {
    "envelopes": 40_000,
    "proofs": 50_000,
    "signed_claims": 30_000,
    "messages": 60_000,
    "uplink": 150_000,
    "mqtt": 40_000,
    "file_questions": 50_000,
    "salt": 40_000,
}
"""Inputs for each target, in the order in which they are run: two minutes in all where nothing else runs."""

TARGET_SECONDS: Final = 90
"""On a slow machine a target ends here, with fewer inputs; how many they were is printed."""

INPUT_SECONDS: Final = 5
INPUT_BYTES: Final = 4096
MEMORY_MEBIBYTES: Final = 512
"""Of the whole process, of which the instrumented interpreter is a fifth."""

MEMORY_PER_BYTE: Final = 200
"""What reading may take at once for each byte. One can be an empty map, for which Python takes 72, and is held twice
where what was read is written and read again."""

MEMORY_AROUND: Final = 512 * 1024
"""What it may take beside that."""
