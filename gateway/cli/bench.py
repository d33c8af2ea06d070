"""``outstation bench``: how fast it is, beside a reference that does the least possible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.command import HelpText, noun, verb

EXITS = {
    EXIT_OK: "measured",
    EXIT_NOT_ALL_OK: "not every answer came, or not everything was proven, so there is no figure",
    EXIT_USAGE: "the command line is wrong",
}

Repeat = Annotated[int, typer.Option(metavar="K", min=1, max=100, help="how many times")]
Json = Annotated[
    bool, typer.Option("--json", help="one JSON object per part and repeat, and last one per part for the median")
]

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
    repeat: Repeat = 1,
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
    repeat: Repeat = 1,
    as_json: Json = False,
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
    repeat: Repeat = 1,
    as_json: Json = False,
) -> int:
    """Run the benchmark."""
    from gateway.bench import spool as measured

    return measured.main(items, repeat, as_json)


SSH = HelpText(
    purpose="Measure a command on many devices over SSH, beside bare asyncssh, salt-ssh and pyinfra.",
    details="The devices are played by asyncssh's own server in processes of their own. salt-ssh and pyinfra are "
    "measured when they are there: 'make bench-peers' puts them where they are looked for.",
    explained={
        "Fields of --json": {
            "part": "connect (connecting and a command), command (on kept connections), memory (an idle device)",
            "ok": "how many devices answered right",
            "ours": "seconds from the API taking the job to its close; of memory, bytes for each device",
            "reference": "the same of bare asyncssh in a process of its own",
            "ratio": "ours / reference; smaller is better; cpu_ratio likewise of CPU seconds",
            "peers": "devices, ok, seconds, per_second and cpu_ms_per_device of salt-ssh and pyinfra",
            "processes": "CPU seconds and peak memory in bytes of each process",
        }
    },
    examples=[
        ("outstation bench ssh", "once, for 500 devices"),
        ("outstation bench ssh --devices 500 --repeat 5 --json", "five times; the worst part's median comes last"),
    ],
    exits=EXITS,
)


@verb(app, "ssh", SSH)
def ssh(
    devices: Annotated[int, typer.Option(metavar="N", min=2, max=10_000, help="how many devices")] = 500,
    repeat: Repeat = 1,
    as_json: Json = False,
    peers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where salt-ssh and pyinfra are; default: .cache/bench-peers")
    ] = None,
    sshd: Annotated[
        bool, typer.Option("--sshd", help="the devices are one real sshd, with this account and a real shell")
    ] = False,
) -> int:
    """Run the benchmark."""
    from gateway.bench import ssh as measured

    return measured.main(devices, repeat, as_json, peers, sshd)


PILLAR = HelpText(
    purpose="Measure the pillar of every device, with ever more distinct inputs, beside bare Jinja and salt-call.",
    details="Fifty files are compiled for devices of five models. salt-call is measured when it is there: "
    "'make bench-peers' puts it where it is looked for.",
    explained={
        "Fields of --json": {
            "part": "how many distinct inputs the devices have among them: so often it is compiled",
            "ok": "how many devices got the right pillar",
            "ours": "seconds of a station's rooms until every device has its own",
            "reference": "seconds of bare Jinja and PyYAML, once for each distinct input, without sandbox or limits",
            "ratio": "ours / reference; smaller is better",
            "peers": "seconds_per_device of salt-call --local pillar.items, which compiles for one device at a time",
            "processes": "CPU seconds and peak memory in bytes of each process",
        }
    },
    examples=[
        ("outstation bench pillar", "once, for 2,000 devices"),
        ("outstation bench pillar --devices 2000 --repeat 5 --json", "five times; the worst part's median comes last"),
    ],
    exits=EXITS,
)


@verb(app, "pillar", PILLAR)
def pillar(
    devices: Annotated[int, typer.Option(metavar="N", min=80, max=100_000, help="how many devices")] = 2000,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, max=100, help="how many times")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per part and repeat, and last one per part for the median")
    ] = False,
    peers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where salt-call is; default: .cache/bench-peers")
    ] = None,
) -> int:
    """Run the benchmark."""
    from gateway.bench import pillar as measured

    return measured.main(devices, repeat, as_json, peers)


REACTOR = HelpText(
    purpose="Measure from an event to its deed, beside a stock Salt master with the same rules and the same events.",
    details="A gateway with one device, and a Salt master with one minion. Where stock Salt is not there, it is "
    "installed from the package index into an environment of its own. Salt takes some 20 ms for each reaction of a "
    "runner, and 0.3 s for each that is a job.",
    explained={
        "Fields of --json": {
            "part": "runner and local (all events at once), runner_alone and local_alone (one event at a time)",
            "ok": "how many events had their deed",
            "ours": "seconds from the first event to the last deed; alone, the median from an event to its deed",
            "reference": "the same of stock Salt",
            "ratio": "ours / reference; smaller is better",
            "ours_per_second": "completed reactions, ours_p50_ms and ours_p99_ms from an event to its deed, "
            "ours_cpu_ms_per_reaction of gateway, broker and agent; reference_… likewise of master and minion",
            "processes": "CPU seconds, and memory in bytes at the end, of all processes of a side",
        }
    },
    examples=[
        ("outstation bench reactor", "once, with 1,000 events for a runner and 100 for jobs"),
        ("outstation bench reactor --jobs 300 --repeat 3 --json", "three times; the worst part's median comes last"),
    ],
    exits=EXITS,
)


@verb(app, "reactor", REACTOR)
def reactor(
    runners: Annotated[int, typer.Option(metavar="N", min=1, max=9_000, help="how many events for a runner")] = 1000,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=3_000, help="how many events for jobs")] = 100,
    alone: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="how many events one at a time")] = 30,
    repeat: Repeat = 1,
    as_json: Json = False,
    peers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where stock Salt is; default: .cache/bench-peers")
    ] = None,
) -> int:
    """Run the benchmark."""
    from gateway.bench import reactor as measured

    return measured.main(runners, jobs, alone, repeat, as_json, peers)
