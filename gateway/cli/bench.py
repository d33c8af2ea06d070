"""``outstation bench``: how fast it is, beside a reference that does the least possible."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.command import HelpText, noun, verb

EXITS = {
    EXIT_OK: "measured",
    EXIT_NOT_ALL_OK: "not every answer came, or not everything was proven, so there is no figure",
    EXIT_USAGE: "the command line is wrong",
}

app = noun(
    HelpText(
        purpose="Benchmarks: the product and a lean reference, side by side in one run.",
        examples=[
            ("outstation bench fanout --devices 1000", "one job to 1,000 devices"),
            ("outstation bench trust", "what proving and sealing costs for each device"),
        ],
        exits=EXITS,
    )
)

FANOUT = HelpText(
    purpose="Measure one job to many devices: from the API taking it to the last return on the master's disk.",
    explained={
        "Fields of --json": {
            "ok": "how many devices answered ok",
            "ours": "seconds of the whole system",
            "reference": "seconds of a bare publisher and collector with the same broker and the same devices",
            "ratio": "ours / reference; smaller is better",
            "processes": "CPU seconds and peak memory in bytes of each process",
        }
    },
    examples=[
        ("outstation bench fanout --devices 1000", "once"),
        ("outstation bench fanout --devices 10000 --repeat 5 --json", "five times and the median"),
    ],
    exits=EXITS,
)


@verb(app, "fanout", FANOUT)
def fanout(
    devices: Annotated[int, typer.Option(metavar="N", min=1, max=18_000, help="how many devices")] = 1000,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, max=100, help="how many times")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per repeat, and a last one for the median")
    ] = False,
) -> int:
    """Run the benchmark."""
    from gateway.bench import fanout as measured

    return measured.main(devices, repeat, as_json)


TRUST = HelpText(
    purpose="Measure what proving and sealing costs for each device, beside the bare cryptography that it needs.",
    explained={
        "Fields of --json": {
            "part": "what was measured: joining, jobs, sessions, frames, a revocation, each end by itself",
            "ok": "how many objects were made and proven to be right",
            "ours": "CPU seconds of the functions that devices and stations call",
            "reference": "CPU seconds of the bare signatures, seals, keys and tags, over as many bytes",
            "ratio": "ours / reference; smaller is better",
            "ours_microseconds": "of one object; reference_microseconds likewise",
            "processes": "CPU seconds and peak memory in bytes of each process",
        }
    },
    examples=[
        ("outstation bench trust", "once, for 5,000 devices"),
        ("outstation bench trust --devices 5000 --repeat 5 --json", "five times; the worst part's median comes last"),
    ],
    exits=EXITS,
)


@verb(app, "trust", TRUST)
def trust(
    devices: Annotated[int, typer.Option(metavar="N", min=2, max=1_000_000, help="how many devices")] = 5000,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, max=100, help="how many times")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per part and repeat, and last one per part for the median")
    ] = False,
) -> int:
    """Run the benchmark."""
    from gateway.bench import trust as measured

    return measured.main(devices, repeat, as_json)


SPOOL = HelpText(
    purpose="Measure how fast events are accepted and how fast a full spool drains, beside bare SQLite and ZeroMQ.",
    details="It fills a spool and empties it, in TMPDIR: that disk is what is measured. Ten million items take some "
    "5 GB of it, and some twenty minutes.",
    explained={
        "Fields of --json": {
            "part": "accept (durable accepts), drain (from a full spool to a master), status (reading the counters)",
            "ok": "how many items were accepted, or delivered and deleted",
            "ours": "seconds of the product's own rooms and links",
            "reference": "seconds of sqlite3 with the same commits, of ZeroMQ between two, or of a tenth of the items",
            "ratio": "ours / reference; smaller is better",
            "slowest_tenth": "of the drain, its seconds / those of the median tenth",
            "processes": "CPU seconds and peak memory in bytes of each process",
        }
    },
    examples=[
        ("outstation bench spool", "once, with 100,000 items"),
        ("outstation bench spool --items 1000000 --repeat 5 --json", "five times; the worst part's median comes last"),
    ],
    exits=EXITS,
)


@verb(app, "spool", SPOOL)
def spool(
    items: Annotated[int, typer.Option(metavar="N", min=1000, max=100_000_000, help="how many items")] = 100_000,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, max=100, help="how many times")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per part and repeat, and last one per part for the median")
    ] = False,
) -> int:
    """Run the benchmark."""
    from gateway.bench import spool as measured

    return measured.main(items, repeat, as_json)
