"""How far each function reaches: the one table that says what amounts to a root shell. Pure.

    looks     changes nothing, and shows what any user of the device may know
    reads     changes nothing, and can show what only root may read: the file that is named, password hashes, pictures
    changes   manages what is there already: services, processes, the clock, names, own grains, restarts
    shell     as good as a root shell: whoever calls it can run what he likes as root, or let himself in for good

Files decide what root runs, so whatever writes, moves, hands over or removes one is ``shell``, and so are packages,
crontabs, accounts, keys, mounts and the parameters of the kernel, whether they come or go. A private key lets in whom
it is shown to: what hands them out is ``shell`` too. An argument can make a call reach further than its function does
without it. Whoever judges uses the table of his own release. What is not in it counts as ``shell`` in every grant. A
device has it only when its site brought it, signed: then the release list says its class, which is ``shell`` unless it
says a lesser one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, get_args

from device_agent.errors import Refused
from device_agent.protocol import mine, several
from device_agent.protocol.globs import compile_glob
from device_agent.trust import reach_arguments
from device_agent.trust.reach_arguments import FURTHER

Reach = reach_arguments.Reach

CLASSES: Final[tuple[Reach, ...]] = get_args(Reach)
"""The nearest first."""

MEANINGS: Final[dict[Reach, str]] = {
    "looks": "changes nothing",
    "reads": "changes nothing, and can show what only root may read",
    "changes": "manages what is there",
    "shell": "as good as a root shell",
}
SHELL_ROLE: Final = "root-shell"
"""The role that a master needs for what is as good as a shell."""

_TABLE: Final[dict[str, dict[Reach, str]]] = {
    # What a beacon is to tell counts as well: see ``_watched``.
    "beacons": {
        "looks": "list_available",
        "reads": "list",
        "changes": "add delete disable disable_beacon enable enable_beacon modify reset save",
    },
    "camera": {"looks": "info probe", "reads": "snapshot"},
    "cmd": {
        "looks": "has_exec shells which which_bin",
        "shell": "exec_code exec_code_all retcode run run_all run_bg run_stderr run_stdout script script_retcode shell"
        " tty",
    },
    "config": {"looks": "backup_mode dot_vals get items manage_mode merge option valid_fileproto"},
    # Where a file is written is in the hands of whoever asks; what a device keeps for itself runs nothing.
    "cp": {
        "looks": "hash_file is_cached list_master list_master_dirs",
        "reads": "get_file_str push",
        "changes": "cache_file",
        "shell": "get_dir get_file get_url recv recv_chunked",
    },
    "cron": {
        "reads": "get_entry list_tab ls raw_cron",
        "shell": "rm rm_env rm_job rm_special set_env set_job set_special write_cron_file write_cron_file_verbose",
    },
    "disk": {"looks": "blkid fstype inodeusage percent usage"},
    # It changes nothing on the device; what the rules of a station make of it is theirs.
    "event": {"changes": "fire fire_master send"},
    "file": {
        "looks": "access basename directory_exists dirname diskusage file_exists find get_gid get_group"
        " get_mode get_uid get_user gid_to_group group_to_gid is_blkdev is_chrdev is_fifo is_hardlink"
        " is_link join lstat normpath pardir path_exists_glob readdir readlink stats uid_to_user user_to_uid",
        "reads": "check_hash contains contains_glob contains_regex get_hash get_sum grep read search seek_read",
        # The device's own sed reads what sed_contains is given, and sed can write files and run commands.
        "shell": "append blockreplace check_perms chgrp chown comment comment_line copy lchown line link makedirs"
        " makedirs_perms mkdir mknod_fifo move patch prepend remove rename replace rmdir sed sed_contains seek_write"
        " set_mode symlink touch truncate uncomment write",
    },
    "grains": {
        "looks": "equals fetch filter_by get has_value item items ls",
        "changes": "append delkey delval remove set setval setvals",
    },
    "group": {"looks": "getent info", "shell": "add adduser chgid delete deluser members"},
    # What the mine has is for others to read. What is called for it counts as well: see ``_carried``.
    "mine": {"looks": "get valid", "changes": "delete flush send update"},
    "mount": {
        "looks": "active fstab is_mounted swaps",
        "shell": "mount remount rm_fstab set_fstab umount",
    },
    "network": {
        "looks": "active_tcp arp calc_net connect convert_cidr default_route dig get_fqdn get_hostname get_route"
        " hw_addr hwaddr ifacestartswith in_subnet interface interface_ip interfaces ip_addrs ip_addrs6 ip_in_subnet"
        " ip_networks ip_networks6 ipaddrs ipaddrs6 iphexval is_loopback is_private netstat ping reverse_ip routes"
        " subnets subnets6 traceroute",
        "changes": "mod_hostname",
    },
    # Values are asterisks unless a call asks for them; whoever may call may ask.
    "pillar": {"looks": "keys ls obfuscate refresh", "reads": "data get item items raw"},
    "pkg": {
        # The lists of packages are fetched anew for some of these; what is installed stays as it is.
        "looks": "available_version info_installed latest_version list_holds list_pkgs list_upgrades refresh_db"
        " upgrade_available version",
        "changes": "hold unhold",
        "shell": "install purge remove upgrade",
    },
    "ps": {
        "looks": "boot_time cpu_percent cpu_times disk_io_counters disk_partition_usage disk_partitions disk_usage"
        " get_pid_list get_users network_io_counters num_cpus pgrep proc_info swap_memory top total_physical_memory"
        " virtual_memory",
        "changes": "kill_pid pkill",
    },
    "saltutil": {
        "looks": "find_job is_running pillar_refresh refresh_grains refresh_pillar running",
        # What is brought was released by a key of the fleet, whoever orders it; it does not run by being brought.
        "changes": "kill_all_jobs kill_job sync_all sync_beacons sync_engines sync_grains sync_modules sync_runners"
        " sync_states term_all_jobs term_job",
    },
    # What an entry is to call counts as well: see ``_carried``. Its arguments are for those who may read them.
    "schedule": {
        "looks": "show_next_fire_time",
        "reads": "is_enabled job_status list",
        "changes": "add build_schedule_item delete disable disable_job enable enable_job modify postpone_job purge"
        " reload run_job save skip_job",
    },
    "service": {
        "looks": "available disabled enabled get_all get_disabled get_enabled get_running get_static masked missing"
        " show status",
        # Of services that are there: to bring a new one takes a file or a package.
        "changes": "disable enable force_reload mask reload restart start stop systemctl_reload unmask",
    },
    "shadow": {
        "looks": "default_hash list_users",
        "reads": "info",
        "shell": "del_password lock_password set_date set_expire set_inactdays set_maxdays set_mindays set_password"
        " set_warndays unlock_password",
    },
    "ssh": {
        "looks": "auth_keys check_key check_known_host get_known_host_entries recv_known_host_entries",
        "reads": "check_key_file",
        # The private keys of the device and of its users are in the answers of host_keys and user_keys.
        "shell": "hash_known_hosts host_keys rm_auth_key rm_known_host set_auth_key set_auth_key_from_file"
        " set_known_host user_keys",
    },
    "status": {
        "looks": "all_status cpuinfo cpustats diskstats diskusage loadavg meminfo netdev netstats nproc pid procs time"
        " uptime version vmstats w"
    },
    "sys": {"looks": "argspec doc list_functions list_modules reload_modules"},
    # One of the parameters is the program that the kernel runs as root when another one dies.
    "sysctl": {"looks": "default_config get show", "shell": "assign persist"},
    "system": {
        "looks": "get_computer_desc get_computer_name get_system_date get_system_date_time get_system_time"
        " has_settable_hwclock",
        "changes": "halt init poweroff reboot set_computer_desc set_computer_name set_system_date set_system_date_time"
        " set_system_time shutdown",
    },
    "test": {
        # What ``cross_test`` is to call counts as well: see ``reach_arguments``.
        "looks": "arg arg_clean arg_repr arg_type assertion collatz conf_test cross_test echo exception fail"
        " false fib get_opts kwarg module_report not_loaded outputter ping provider providers raise_exception"
        " rand_sleep rand_str random_hash retcode sleep stack true version versions versions_information"
        " versions_report"
    },
    "timezone": {
        "looks": "get_hwclock get_offset get_zone get_zonecode zone_compare",
        "changes": "set_hwclock set_zone",
    },
    "user": {
        "looks": "getent info list_groups list_users primary_group",
        "shell": "add chfullname chgid chgroups chhome chhomephone chother chroomnumber chshell chuid chworkphone"
        " delete rename",
    },
}
FUNCTIONS: Final[Mapping[str, Reach]] = {
    f"{module}.{name}": reach
    for module, by_reach in _TABLE.items()
    for reach, names in by_reach.items()
    for name in names.split()
}
"""Every function of this release."""

MODULES: Final = frozenset(_TABLE)
"""Every module of this release. What a site brings has none of these names, so that a grant for one means one thing."""

Custom = Callable[[str], Reach | None]
"""The class of a function that a site brought; None for one that it did not."""


def no_custom(_fun: str) -> None:
    """Where a site brings nothing."""


CARRIERS: Final = frozenset({"mine.send", "mine.update", "schedule.add", "schedule.modify"})
"""What they are given is called by them."""

_SCHEDULED: Final = frozenset({"schedule.add", "schedule.modify"})
TELLING: Final = frozenset({"beacons.add", "beacons.modify"})
"""What they configure tells the station by itself, from then on."""

TELLS_WHAT_ANYBODY_KNOWS: Final = frozenset(
    {
        "camera_stream",
        "diskusage",
        "inotify",
        "load",
        "memusage",
        "network_info",
        "network_settings",
        "ps",
        "service",
        "status",
        "swapusage",
        "temperature",
        "uptime",
    }
)
"""Beacons of this release whose events have nothing in them that only root may read."""

_SENT: Final = frozenset({"name", "mine_function", "allow_tgt", "allow_tgt_type"})

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and named ones; None stands for those that are not known, and reaches as far as any do."""

NONE: Final[Arguments] = ((), {})


def reach_of(fun: str, given: Arguments | None = NONE, custom: Custom = no_custom) -> Reach | None:
    """How far a call reaches; None for a function that neither this release has nor a site brought."""
    if fun == several.SEVERAL:
        return _furthest(given, custom)
    found = FUNCTIONS.get(fun)
    if found is None:
        return custom(fun)
    further = [each.reach for each in FURTHER.get(fun, ()) if given is None or each.given(*given)]
    if fun in CARRIERS:
        further.append(_carried(fun, given))
    if fun in TELLING:
        further.append(_watched(given))
    return max([found, *further], key=CLASSES.index)


def _furthest(given: Arguments | None, custom: Custom) -> Reach | None:
    """How far the furthest of several functions reaches; a shell's way where that cannot be seen."""
    try:
        made = several.calls(several.SEVERAL, *(given or NONE))
    except Refused:
        return "shell"
    reaches = [reach_of(each.fun, (each.arg, each.kwarg), custom) for each in made]
    known = [reach for reach in reaches if reach is not None]
    # Where one is not known, None is safer than the furthest known: ``shell`` to every grant, as that one is by itself.
    return None if len(known) < len(reaches) and "shell" not in known else max(known, key=CLASSES.index)


def _carried(fun: str, given: Arguments | None) -> Reach:
    """How far what a call has called reaches. What only root may read is put before others."""
    if given is None:
        return "shell"
    arg, kwarg = given
    if fun in _SCHEDULED:
        return _scheduled(kwarg) if arg or kwarg else "changes"
    made: list[tuple[Any, Arguments]]
    if fun == "mine.send":
        if not arg and not kwarg:
            return "changes"
        rest = {key: value for key, value in kwarg.items() if key not in _SENT}
        called = kwarg.get("mine_function") or kwarg.get("name") or (arg[0] if arg else "")
        if not isinstance(called, str):
            return "shell"
        made = [(called, (arg[0 if "name" in kwarg else 1 :], rest))]
    else:
        try:
            found = mine.calls(kwarg.get("mine_functions", arg[1] if len(arg) > 1 else None) or [])
        except Refused:
            return "shell"
        made = [(each.fun, (each.arg, each.kwarg)) for each in found]
    # What would call others in its turn is not called from here (``device_agent.mine``): it counts as not there.
    reaches = [(reach_of(*each) if each[0] not in CARRIERS else None) or "shell" for each in made]
    return "shell" if {"reads", "shell"}.intersection(reaches) else "changes"


def _scheduled(kwarg: Mapping[str, Any]) -> Reach:
    """How far an entry of a schedule reaches. What it returns is in an event, which others see."""
    called, arg, named = kwarg.get("function"), kwarg.get("job_args") or [], kwarg.get("job_kwargs") or {}
    # Without a function it is that of an entry which is not known here, and with arguments that are none it is refused.
    if not isinstance(called, str) or called in CARRIERS or not isinstance(arg, list) or not isinstance(named, dict):
        return "shell"
    return "changes" if reach_of(called, (arg, named)) in {"looks", "changes"} else "shell"


def _watched(given: Arguments | None) -> Reach:
    """How far a beacon reaches that a call configures. What only root may read would be in an event, for all to see."""
    if given is None:
        return "shell"
    arg, kwarg = given
    if not arg and not kwarg:
        return "changes"
    name = kwarg.get("name", arg[0] if arg else "")
    place = 0 if "name" in kwarg else 1
    data = kwarg.get("beacon_data", arg[place] if len(arg) > place else None)
    items = data if isinstance(data, list) else [data]
    named = [each["beacon_module"] for each in items if isinstance(each, Mapping) and "beacon_module" in each]
    return "changes" if TELLS_WHAT_ANYBODY_KNOWS.issuperset(map(str, named or [name])) else "shell"


def needs_shell(fun: str, given: Arguments | None = NONE, custom: Custom = no_custom) -> bool:
    """Whether a master needs the role for it. What is not known here needs none: it does not run here."""
    return reach_of(fun, given, custom) == "shell"


def outgrown(then: Reach | None, now: Reach | None) -> bool:
    """Whether a function that a site brought reaches further than when a call of it was judged.

    What was not known then was judged as a shell where somebody granted it, and as what runs nowhere for a master.
    """
    if now is None:
        return False
    return now == "shell" if then is None else CLASSES.index(now) > CLASSES.index(then)


def concerns(term: str, fun: str, given: Arguments | None, custom: Custom = no_custom) -> bool:
    """Whether a class or a glob of functions is about this call."""
    if term in CLASSES:
        return (reach_of(fun, given, custom) or "shell") == term
    # No glob is about several functions at once: each of them is judged by its own name.
    return fun != several.SEVERAL and _glob(term)(fun)


def granted(term: str, fun: str, given: Arguments | None, *, spelled: bool = False, custom: Custom = no_custom) -> bool:
    """Whether a class or a glob in a grant covers this call. What is as good as a shell is covered only on purpose.

    On purpose is: by the word ``shell``, or by a glob that names the module, as ``file.*`` does for ``file.write`` and
    ``*`` or ``f*`` do not. Where only an argument makes it so, the name of the function is not enough: the arguments
    must be ``spelled`` out in the grant.
    """
    if not concerns(term, fun, given, custom):
        return False
    if term in CLASSES or (reach_of(fun, given, custom) or "shell") != "shell":
        return True
    return spelled if FUNCTIONS.get(fun, "shell") != "shell" else _names_module(term, fun)


def can_cover(term: str, fun: str, custom: Custom = no_custom) -> bool:
    """Whether a class or a glob in a grant covers a function with some arguments.

    Of a list of functions nothing is known without its arguments, so every term can cover one.
    """
    if fun == several.SEVERAL:
        return True
    # No argument makes a call reach less far than it does without arguments.
    least = reach_of(fun, NONE, custom) or "shell"
    if term not in CLASSES:
        return _glob(term)(fun) and (least != "shell" or _names_module(term, fun))
    further = {each.reach for each in FURTHER.get(fun, ())}
    if fun in CARRIERS or fun in TELLING:
        further.add("shell")
    return term == least or (term in further and CLASSES.index(term) > CLASSES.index(least))


def grants_shell(terms: Sequence[str]) -> bool:
    """Whether any of these covers a function that is as good as a shell."""
    shell = [fun for fun, reach in FUNCTIONS.items() if reach == "shell"]
    return any(term.startswith("cmd.") or granted(term, fun, NONE) for term in terms for fun in shell)


def words(term: str) -> str:
    """A class with what it means, for people; a glob as it is."""
    return f"{term} ({MEANINGS[term]})" if term in CLASSES else term


def why_further(fun: str, given: Arguments | None) -> str:
    """Which arguments make a call reach further than its function, for people; empty when none does."""
    if fun in CARRIERS and reach_of(fun, given) == "shell":
        return "what it is to call"
    if fun in TELLING and reach_of(fun, given) == "shell":
        return "what the beacon tells"
    return " and ".join(each.words for each in FURTHER.get(fun, ()) if given is None or each.given(*given))


def _names_module(glob: str, fun: str) -> bool:
    return glob.startswith(f"{fun.partition('.')[0]}.")


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> Callable[[str], bool]:
    return compile_glob(pattern)
