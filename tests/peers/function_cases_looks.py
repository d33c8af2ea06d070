"""Calls of network.*, disk.*, status.*, ps.* and camera.*, and what must come of them on any machine."""

from __future__ import annotations

from typing import Any

from tests.peers.function_case import Case

NOBODY = "zz-no-such-process"
LOOPBACK = {"address": "127.0.0.1", "netmask": "255.0.0.0", "broadcast": None, "label": "lo"}
CLOSED = "Unable to connect to 127.0.0.1 (127.0.0.1) on tcp port 1"


def numbers(*names: str) -> Any:
    """A mapping with at least these names, whose values are numbers."""
    return lambda found: set(names) <= found.keys() and all(isinstance(found[name], (int, float)) for name in names)


def rows(*names: str) -> Any:
    """A list of mappings that have these names and no others."""
    return lambda found: isinstance(found, list) and all(row.keys() == set(names) for row in found)


NETWORK = (
    Case("network.interfaces", check=lambda found: found["lo"]["up"] and found["lo"]["inet"] == [LOOPBACK]),
    Case("network.interface", ("lo",), value=[LOOPBACK]),
    Case("network.interface", ("no0",), outcome="failed", why='Interface "no0" not in available interfaces: "lo"'),
    Case("network.interface_ip", ("lo",), value="127.0.0.1"),
    Case("network.hw_addr", ("lo",), value="00:00:00:00:00:00"),
    Case("network.hwaddr", ("lo",), value="00:00:00:00:00:00"),
    Case("network.ip_addrs", check=lambda found: "127.0.0.1" not in found),
    Case("network.ip_addrs", ("lo",), {"include_loopback": True}, value=["127.0.0.1"]),
    Case("network.ip_addrs", (), {"cidr": "127.0.0.0/8"}, value=[]),
    Case("network.ip_addrs", (), {"cidr": "127.0.0.0/8", "include_loopback": True}, value=["127.0.0.1"]),
    Case("network.ip_addrs", (), {"type": "private"}),
    Case("network.ip_addrs", ("no0",), value=[]),
    Case("network.ipaddrs", check=lambda found: "127.0.0.1" not in found),
    Case("network.ip_addrs6", check=lambda found: "::1" not in found),
    Case("network.ipaddrs6", check=lambda found: "::1" not in found),
    Case("network.subnets", check=lambda found: "127.0.0.0/8" not in found),
    Case("network.subnets6", check=lambda found: "::1/128" not in found),
    Case("network.ip_networks", (), {"include_loopback": True}, check=lambda found: "127.0.0.0/8" in found),
    Case("network.ip_networks6"),
    Case("network.in_subnet", ("127.0.0.0/8",), value=False),
    Case("network.in_subnet", ("0.0.0.0/0",)),
    Case("network.in_subnet", ("203.0.113.0/30",), value=False),
    Case("network.ifacestartswith", ("127.0",), value=["lo"]),
    Case("network.routes", check=rows("addr_family", "destination", "gateway", "netmask", "flags", "interface")),
    Case("network.routes", (), {"family": "inet"}),
    Case("network.default_route"),
    Case(
        "network.get_route", ("127.0.0.1",), check=lambda found: (found["interface"], found["gateway"]) == ("lo", None)
    ),
    Case("network.get_route", ("-h",), outcome="failed", why="is no address", salt="no"),
    Case("network.arp", salt="shape"),
    Case("network.netstat", check=lambda found: all("local-address" in row for row in found), salt="shape"),
    Case("network.active_tcp", salt="shape"),
    Case("network.get_hostname", check=bool),
    Case("network.get_fqdn", check=bool, salt="shape"),
    Case("network.mod_hostname", ("not a name",), outcome="refused", why="bad_arguments", salt="no"),
    Case("network.connect", ("127.0.0.1", 1), value={"result": False, "comment": CLOSED}),
    Case("network.connect", ("-x", 1), outcome="refused", why="bad_arguments", salt="no"),
    Case("network.ping", ("$(reboot)",), outcome="refused", why="bad_arguments", salt="no"),
    Case("network.traceroute", ("-x",), outcome="refused", why="bad_arguments", salt="no"),
    Case("network.dig", ("a b",), outcome="refused", why="bad_arguments", salt="no"),
    Case("network.calc_net", ("10.0.0.5", "255.255.255.0"), value="10.0.0.0/24"),
    Case("network.calc_net", ("2001:db8::5/64",), value="2001:db8::/64"),
    Case("network.calc_net", ("10.0.0.500",), outcome="failed", why="is no address", salt="no"),
    Case(
        "network.convert_cidr",
        ("10.0.0.5/24",),
        value={"network": "10.0.0.0", "netmask": "255.255.255.0", "broadcast": "10.0.0.255"},
    ),
    Case("network.ip_in_subnet", ("172.17.0.4", "172.16.0.0/12"), value=True),
    Case("network.is_private", ("10.0.0.3",), value=True),
    Case("network.is_private", ("8.8.8.8",), value=False),
    Case("network.is_loopback", ("127.0.0.1",), value=True),
    Case("network.reverse_ip", ("10.0.0.1",), value="1.0.0.10.in-addr.arpa"),
    Case("network.iphexval", ("10.0.0.1",), value="0A000001"),
)

DISK = (
    Case(
        "disk.usage",
        check=lambda found: all(
            row.keys() == {"filesystem", "1K-blocks", "used", "available", "capacity"} for row in found.values()
        ),
        salt="shape",
    ),
    Case("disk.usage", ("a",), salt="shape"),
    Case("disk.usage", ("x; reboot",), outcome="refused", why="bad_arguments", salt="no"),
    Case(
        "disk.inodeusage",
        check=lambda found: all(
            row.keys() == {"inodes", "used", "free", "use", "filesystem"} for row in found.values()
        ),
        salt="shape",
    ),
    Case("disk.percent", check=lambda found: all(word.endswith(("%", "-")) for word in found.values()), salt="shape"),
    Case("disk.percent", ("/no/such/place",), outcome="failed", why="nothing is mounted", salt="no"),
    Case("disk.blkid", check=lambda found: isinstance(found, dict)),
    Case("disk.fstype", ("/dev/no-such-device",), value="", salt="no"),
)

STATUS = (
    Case("status.uptime", check=numbers("seconds", "since_t", "days", "users"), salt="shape"),
    Case("status.loadavg", check=numbers("1-min", "5-min", "15-min"), salt="shape"),
    Case("status.cpustats", check=lambda found: found["cpu"]["user"] >= 0 and found["btime"] > 0, salt="shape"),
    Case("status.meminfo", check=lambda found: found["MemTotal"]["unit"] == "kB", salt="shape"),
    Case("status.cpuinfo", check=lambda found: "processor" in found, salt="shape"),
    Case("status.vmstats", check=numbers("nr_free_pages"), salt="shape"),
    Case("status.diskstats", check=lambda found: isinstance(found, dict), salt="shape"),
    Case("status.netstats", check=lambda found: "TcpExt" in found, salt="shape"),
    Case("status.netdev", check=lambda found: found["lo"]["iface"] == "lo", salt="shape"),
    Case("status.nproc", check=lambda count: count >= 1),
    Case("status.version", check=lambda text: text.startswith("Linux version ")),
    Case("status.time", ("%%Y",), value="%Y"),
    Case("status.time", ("%Y $(reboot) '",), check=lambda text: "$(reboot)" in text),
    Case(
        "status.diskusage",
        check=lambda found: all(row.keys() == {"available", "total"} for row in found.values()) and "/proc" in found,
        salt="shape",
    ),
    Case(
        "status.diskusage", ("proc",), check=lambda found: found["/proc"] == {"available": 0, "total": 0}, salt="shape"
    ),
    Case(
        "status.procs", check=lambda found: any(row.keys() == {"user", "cmd"} for row in found.values()), salt="shape"
    ),
    Case("status.pid", (NOBODY,), value=""),
    Case("status.w", check=rows("idle", "jcpu", "login", "pcpu", "tty", "user", "what"), salt="shape"),
    Case("status.all_status", check=lambda found: {"uptime", "cpuinfo", "w"} <= found.keys(), salt="shape"),
)

PS = (
    Case("ps.get_pid_list", check=lambda found: all(isinstance(pid, int) for pid in found), salt="shape"),
    Case("ps.top", (2, 0.05), check=lambda found: len(found) == 2 and found[0]["pid"] > 0, salt="no"),
    # Of all, for those of the kernel have another shape than programs, and either may be busiest.
    Case("ps.top", (1000, 0.05), check=lambda found: found[0]["pid"] > 0, salt="shape"),
    Case("ps.proc_info", (1,), {"attrs": ["pid", "ppid"]}, check=lambda found: found["pid"] == 1),
    Case("ps.proc_info", (1,), check=lambda found: found["num_threads"] >= 1 and len(found["uids"]) == 3, salt="no"),
    Case("ps.proc_info", (1,), {"attrs": ["environ"]}, outcome="failed", why="nothing is known as environ", salt="no"),
    Case("ps.proc_info", (2**22 + 1,), outcome="failed", why="there is no process", salt="no"),
    Case("ps.pgrep", (NOBODY,), value=None),
    Case("ps.pgrep", ("[",), {"pattern_is_regex": True}, outcome="failed", why="no regular expression", salt="no"),
    Case("ps.pkill", (NOBODY,), value=None),
    Case("ps.kill_pid", (2**22 + 1,), value=False),
    Case("ps.num_cpus", check=lambda count: count >= 1),
    Case("ps.cpu_percent", check=lambda share: 0 <= share <= 100, salt="shape"),
    Case("ps.cpu_percent", (0.05,), {"per_cpu": True}, check=lambda found: len(found) >= 1, salt="shape"),
    Case("ps.cpu_times", check=numbers("user", "system", "idle"), salt="shape"),
    Case("ps.cpu_times", (True,), check=lambda found: len(found) >= 1, salt="shape"),
    Case("ps.virtual_memory", check=numbers("total", "available", "percent", "used", "free"), salt="shape"),
    Case("ps.swap_memory", check=numbers("total", "used", "free", "percent", "sin", "sout"), salt="shape"),
    Case("ps.total_physical_memory", check=lambda size: size > 2**20),
    Case("ps.boot_time", check=lambda seconds: seconds > 0),
    Case("ps.boot_time", ("%%",), value="%"),
    Case("ps.disk_usage", ("/proc",), value={"total": 0, "used": 0, "free": 0, "percent": 0.0}),
    Case("ps.disk_usage", ("/no/such/place",), outcome="failed", why="/no/such/place"),
    Case("ps.disk_partitions", check=rows("device", "mountpoint", "fstype", "opts")),
    Case("ps.disk_partitions", (True,), check=lambda found: any(row["mountpoint"] == "/proc" for row in found)),
    Case(
        "ps.disk_partition_usage",
        check=rows("device", "mountpoint", "fstype", "opts", "total", "used", "free", "percent"),
        salt="shape",
    ),
    Case("ps.network_io_counters", check=numbers("bytes_sent", "dropin"), salt="shape"),
    Case("ps.network_io_counters", (), {"interface": "no0"}, value=False),
    Case("ps.disk_io_counters", check=numbers("read_count", "busy_time"), salt="shape"),
    Case("ps.disk_io_counters", (), {"device": "no0"}, value=False),
    Case("ps.get_users", check=rows("name", "terminal", "host", "started", "pid"), salt="shape"),
)

CAMERA = (
    Case(
        "camera.probe",
        (),
        {"rtsp_port": 1, "http_port": 0},
        outcome="failed",
        why="the camera does not answer: rtsp: ",
        salt="no",
    ),
    Case("camera.info", (), {"rtsp_port": 1, "http_port": 0}, check=lambda found: found["answers"] == [], salt="no"),
    Case("camera.snapshot", (), {"http_port": 1}, outcome="failed", why="the camera gave no picture: ", salt="no"),
    Case("camera.snapshot", ("no path",), outcome="refused", why="bad_arguments", salt="no"),
)

CASES = (*NETWORK, *DISK, *STATUS, *PS, *CAMERA)

SAME = (
    *("network.interfaces", "network.ip_addrs", "network.ip_addrs6", "network.subnets", "network.subnets6"),
    *("network.routes", "network.default_route", "status.nproc", "status.version"),
    *("ps.num_cpus", "ps.total_physical_memory", "ps.boot_time"),
)
"""Calls that have one right answer on a machine, however it is asked."""
