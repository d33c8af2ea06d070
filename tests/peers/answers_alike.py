"""When two answers of one function are the same, and the functions whose answers cannot be."""

from __future__ import annotations

from typing import Any, Final

from device_agent.ended import Ended

NOT_RUN: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("mine.delete", "mine.flush", "mine.get", "mine.send", "mine.update", "mine.valid"),
        "what it does is done at the station, and each way has its own values there",
    ),
    **dict.fromkeys(
        (
            "beacons.add",
            "beacons.delete",
            "beacons.disable",
            "beacons.disable_beacon",
            "beacons.enable",
            "beacons.enable_beacon",
            "beacons.list",
            "beacons.list_available",
            "beacons.modify",
            "beacons.reset",
            "beacons.save",
        ),
        "nothing watches a device without an agent: tests/unit/device_agent/beacons/test_functions.py",
    ),
    **dict.fromkeys(
        ("event.fire", "event.fire_master", "event.send"),
        "what it does is done at the station: tests/system/test_device_events.py",
    ),
    **dict.fromkeys(
        ("cp.cache_file", "cp.get_dir", "cp.get_file", "cp.get_file_str", "cp.get_url", "cp.hash_file", "cp.is_cached"),
        "played over every host, with files to bring, in tests/integration/test_cp.py",
    ),
    **dict.fromkeys(
        (
            *("schedule.add", "schedule.build_schedule_item", "schedule.delete", "schedule.disable"),
            *("schedule.disable_job", "schedule.enable", "schedule.enable_job", "schedule.is_enabled"),
            *("schedule.job_status", "schedule.list", "schedule.modify", "schedule.postpone_job", "schedule.purge"),
            *("schedule.reload", "schedule.run_job", "schedule.save", "schedule.show_next_fire_time"),
            "schedule.skip_job",
        ),
        "an agent has a schedule and no other device has: tests/integration/test_agent_schedule.py",
    ),
    **dict.fromkeys(("cp.list_master", "cp.list_master_dirs", "cp.push"), "played there as well"),
}
"""Functions that are not run here, and why."""

PASSES: Final[dict[str, str]] = {
    **dict.fromkeys(("test.rand_str", "test.random_hash"), "drawn anew each time"),
    **dict.fromkeys(("test.collatz", "test.fib"), "the time that it took is in it"),
    "test.stack": "each way has a call stack of its own",
    **dict.fromkeys(
        ("network.netstat", "network.active_tcp", "network.arp"),
        "connections of the one network that all machines share",
    ),
    **dict.fromkeys(
        (
            "disk.usage",
            "disk.inodeusage",
            "disk.percent",
            "status.diskusage",
            "ps.disk_usage",
            "ps.disk_partition_usage",
        ),
        "files are written meanwhile",
    ),
    **dict.fromkeys(
        ("status.uptime", "status.time", "system.get_system_time", "system.get_system_date_time"), "the time goes on"
    ),
    **dict.fromkeys(("status.loadavg", "status.cpustats", "ps.cpu_percent", "ps.cpu_times"), "how busy it is"),
    **dict.fromkeys(
        ("status.meminfo", "status.vmstats", "ps.virtual_memory", "ps.swap_memory"), "memory is taken and given back"
    ),
    **dict.fromkeys(
        ("status.diskstats", "status.netstats", "status.netdev", "ps.network_io_counters", "ps.disk_io_counters"),
        "counters that count on",
    ),
    **dict.fromkeys(
        ("status.procs", "status.all_status", "status.cpuinfo", "ps.get_pid_list", "ps.top", "ps.proc_info"),
        "processes come and go, the agent or the SSH server among them",
    ),
    **dict.fromkeys(("mount.active", "ps.disk_partitions"), "each machine is mounted from a folder of its own"),
    "sysctl.show": "the kernel counts in some of them",
    "ssh.get_known_host_entries": "names are hidden with salt drawn anew",
    "shadow.default_hash": "a hash with salt drawn anew",
}
"""Functions of which only the shape is compared, because of what passes while one looks."""

OWN: Final[dict[str, str]] = dict.fromkeys(
    ("config.get", "config.option", "config.merge", "config.items", "test.get_opts"),
    "an agent has a file of settings, a device without one has its line in the gateway's book",
)
"""Functions that tell something of the device and not of its machine, and what."""

OF_THE_KIND: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "grains.items",
            "grains.item",
            "grains.ls",
            "grains.fetch",
            "grains.equals",
            "grains.filter_by",
            "grains.set",
            "camera.info",
        ),
        "BusyBox alone is no Debian",
    ),
    **dict.fromkeys(("mount.active", "ps.disk_partitions"), "other file systems are mounted"),
    "file.stats": "a folder has another size on another file system",
    "mount.mount": "its mount says what is wrong in its own words",
    "shadow.list_users": "it has fewer accounts",
    **dict.fromkeys(("cmd.which", "cmd.which_bin", "cmd.shells"), "programs are elsewhere there"),
    **dict.fromkeys(
        ("disk.usage", "disk.inodeusage", "disk.percent", "status.diskusage", "ps.disk_partition_usage"),
        "other file systems are mounted",
    ),
}
"""Functions that answer otherwise on a machine of another kind, and why."""

PASSING: Final = {"pid", "inode", "atime", "mtime", "ctime", "st_atime", "st_mtime", "st_ctime", "id", "install_date"}
"""What is another value each time one looks, or on each device."""


def alike(fun: str, one: Ended, other: Ended) -> bool:
    """Whether two machines of a kind say the same."""
    return told(fun, one) == told(fun, other)


def told(fun: str, ended: Ended) -> tuple[Any, ...]:
    """What is compared of an answer."""
    if fun in OWN:
        return ended.outcome, ended.retcode
    return ended.outcome, ended.retcode, shape(ended.value) if fun in PASSES else lifted(ended.value)


def lifted(value: Any) -> Any:
    """A value without what passes."""
    if isinstance(value, dict):
        return {key: type(inner).__name__ if key in PASSING else lifted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [lifted(inner) for inner in value]
    return value


def shape(value: Any) -> Any:
    """Of a mapping or a list what kinds of things are in it, of anything else what it is."""
    if isinstance(value, dict):
        return {"a mapping of": sorted({str(shape(inner)) for inner in value.values()} - {"NoneType"})}
    if isinstance(value, list):
        return {"a list of": sorted({str(shape(inner)) for inner in value})}
    return type(value).__name__
