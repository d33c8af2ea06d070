"""``pkg`` over opkg and apk, ``service`` over OpenRC: each command that they are sent, and what is made of the answer.

No OpenWrt and no Alpine was there to run them. What they say here was written down from what they are known to print.
"""

from __future__ import annotations

from typing import Any

import pytest

from device_agent import loader
from device_agent.ended import Ended
from device_agent.packages import locks
from tests.peers.transcript import Told, Transcript

LISTS = "https://downloads.openwrt.org/releases/23.05.3"
MIRROR = "https://dl-cdn.alpinelinux.org/alpine/v3.19"
BEFORE = "base-files - 1562-r24106\ncurl - 8.6.0-1\n"
AFTER = "base-files - 1562-r24106\ncurl - 8.7.1-r1\n"


async def called(host: Transcript, fun: str, *arg: Any, **kwarg: Any) -> Ended:
    """The call, in which all that is written down was said."""
    ended = await loader.call(fun, host, list(arg), kwarg)
    assert not host.left, f"{fun} did not ask {[told.command for told in host.left]}: {ended}"
    return ended


def openwrt(*told: Told) -> Transcript:
    return Transcript(*told, programs=("opkg",))


def alpine(*told: Told) -> Transcript:
    return Transcript(*told, programs=("apk",))


def openrc(*told: Told) -> Transcript:
    return Transcript(*told, kind="openrc")


# --- locks ----------------------------------------------------------------------------------------------------------


APT = "env DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none UCF_FORCE_CONFFOLD=1 apt-get -q"
UPDATE = f"{APT} -o DPkg::Lock::Timeout=60 update"
HELD = {
    UPDATE: "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)\n"
    "E: Unable to lock directory /var/lib/apt/lists/\n",
    "apt-mark hold -- curl": "dpkg: error: dpkg frontend lock was locked by another process with pid 812\n",
    "opkg update": "opkg: Could not lock /var/lock/opkg.lock: Resource temporarily unavailable.\n",
    "apk update": "ERROR: Unable to lock database: Resource temporarily unavailable\n",
}
"""By the command: what it says while another program holds the lock."""


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("command", list(HELD))
async def test_a_lock_that_another_program_holds_is_waited_for(command: str) -> None:
    before = Told("apt-mark showhold") if command.startswith("apt-mark") else None
    held = Told(command, "", HELD[command], 99)
    program = "apt-get" if "apt" in command else command.partition(" ")[0]
    host = Transcript(*([before] if before else []), held, held, Told(command, "done\n"), programs=(program,))
    ended = await (called(host, "pkg.hold", "curl") if before else called(host, "pkg.refresh_db"))
    assert ended.outcome == "ok", ended


@pytest.mark.usefixtures("_quick")
async def test_a_lock_that_stays_held_is_a_failure_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.0)
    host = Transcript(Told(UPDATE, "", HELD[UPDATE], 100), programs=("apt-get",))
    ended = await called(host, "pkg.refresh_db")
    assert ended.outcome == "failed"
    assert ended.why.startswith("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812")


# --- opkg -------------------------------------------------------------------------------------------------------------


async def test_opkg_fetches_its_lists_and_says_which_are_of_no_use() -> None:
    said = (
        f"Downloading {LISTS}/base/Packages.gz\n"
        "Updated list of available packages in /var/opkg-lists/openwrt_base\n"
        f"Downloading {LISTS}/base/Packages.sig\n"
        "Signature check passed.\n"
        f"Downloading {LISTS}/luci/Packages.gz\n"
        "Updated list of available packages in /var/opkg-lists/openwrt_luci\n"
        f"Downloading {LISTS}/luci/Packages.sig\n"
        "Signature check failed.\n"
        "Remove wrong Signature file.\n"
        f"Downloading {LISTS}/telephony/Packages.gz\n"
        f"*** Failed to download the package list from {LISTS}/telephony/Packages.gz\n\n"
    )
    failing = "Collected errors:\n * opkg_download: Failed to download"
    host = openwrt(Told("opkg update", said, f"{failing} {LISTS}/telephony/Packages.gz, wget returned 4.\n", 1))
    assert (await called(host, "pkg.refresh_db")).value == {
        f"{LISTS}/base/Packages.gz": True,
        f"{LISTS}/luci/Packages.gz": False,
        f"{LISTS}/telephony/Packages.gz": False,
    }


async def test_opkg_installs_removes_and_upgrades() -> None:
    host = openwrt(
        Told("opkg list-installed", "base-files - 1562-r24106\n"),
        Told("opkg install curl", "Installing curl (8.6.0-1) to root...\nConfiguring curl.\n"),
        Told("opkg list-installed", BEFORE),
    )
    assert (await called(host, "pkg.install", "curl")).value == {"curl": {"old": "", "new": "8.6.0-1"}}
    host = openwrt(
        Told("opkg list-installed", BEFORE),
        Told("opkg list-upgradable", "curl - 8.6.0-1 - 8.7.1-r1\n"),
        Told("opkg upgrade curl", "Upgrading curl on root from 8.6.0-1 to 8.7.1-r1...\nConfiguring curl.\n"),
        Told("opkg list-installed", AFTER),
    )
    assert (await called(host, "pkg.upgrade", refresh=False)).value == {"curl": {"old": "8.6.0-1", "new": "8.7.1-r1"}}
    host = openwrt(
        Told("opkg list-installed", AFTER),
        Told("opkg remove curl", "Removing package curl from root...\n"),
        Told("opkg list-installed", "base-files - 1562-r24106\n"),
    )
    assert (await called(host, "pkg.remove", "cur*")).value == {"curl": {"old": "8.7.1-r1", "new": ""}}


async def test_opkg_has_no_such_package_or_no_such_version() -> None:
    why = "Collected errors:\n * opkg_install_cmd: Cannot install package nothing-such.\n"
    host = openwrt(
        Told("opkg list-installed", BEFORE),
        Told("opkg install nothing-such", "Unknown package 'nothing-such'.\n", why, 255),
        Told("opkg list-installed", BEFORE),
    )
    ended = await called(host, "pkg.install", "nothing-such")
    assert (ended.outcome, ended.value, "Cannot install" in ended.why) == ("failed", {}, True)
    host = openwrt(
        Told("opkg list-installed", BEFORE),
        Told("opkg list-upgradable", "curl - 8.6.0-1 - 8.7.1-r1\n"),
        Told("opkg list-installed", BEFORE),
        Told("opkg list-installed", BEFORE),
        Told("opkg list-installed", BEFORE),
    )
    ended = await called(host, "pkg.install", "curl", version="9")
    assert (ended.outcome, ended.why) == ("failed", "opkg has 8.7.1-r1 of curl, and no 9")


async def test_what_opkg_cannot_do_is_not_left_out_silently() -> None:
    host = openwrt(Told("opkg list-installed", BEFORE), Told("opkg list-installed", BEFORE))
    ended = await called(host, "pkg.install", "curl", fromrepo="extra")
    assert (ended.outcome, "no fromrepo" in ended.why) == ("failed", True)
    for host in (
        openwrt(*[Told("opkg list-installed", BEFORE)] * 3),
        alpine(*[Told("apk info -v", "musl-1.2.4-r2\n")] * 3),
    ):
        assert (await called(host, "pkg.install", "wget", only_upgrade=True)).value == {}


async def test_opkg_holds_by_a_flag() -> None:
    free = "Package: curl\nVersion: 8.6.0-1\nStatus: install user installed\nArchitecture: mipsel_24kc\n"
    held = free.replace("user", "hold")
    host = openwrt(Told("opkg status", free), Told("opkg flag hold curl", "Setting flags for package curl to hold.\n"))
    assert (await called(host, "pkg.hold", "curl")).value["curl"]["changes"] == {"old": "install", "new": "hold"}
    assert (await called(openwrt(Told("opkg status", held)), "pkg.list_holds")).value == ["curl"]
    host = openwrt(Told("opkg status", held), Told("opkg flag ok curl", "Setting flags for package curl to ok.\n"))
    assert (await called(host, "pkg.unhold", "curl")).value["curl"]["changes"] == {"old": "hold", "new": "install"}
    told = (await called(openwrt(Told("opkg status curl", held)), "pkg.info_installed", "curl")).value
    assert told == {"curl": {"name": "curl", "version": "8.6.0-1", "arch": "mipsel_24kc"}}


async def test_opkg_says_which_version_would_come() -> None:
    host = openwrt(
        Told("opkg list-upgradable", "curl - 8.6.0-1 - 8.7.1-r1\n"),
        Told("opkg list-installed", BEFORE),
        Told("opkg info tcpdump", "Package: tcpdump\nVersion: 4.99.4-1\nStatus: unknown ok not-installed\n"),
    )
    found = (await called(host, "pkg.latest_version", "curl", "base-files", "tcpdump", refresh=False)).value
    assert found == {"curl": "8.7.1-r1", "base-files": "", "tcpdump": "4.99.4-1"}


# --- apk --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failing",
    [
        f"ERROR: {MIRROR}/community: temporary error (try again later)\n",
        f"WARNING: Ignoring {MIRROR}/community: network error (check Internet connection and firewall)\n",
        f"WARNING: updating and opening {MIRROR}/community: temporary error (try again later)\n",
    ],
)
async def test_apk_fetches_its_lists_in_the_words_of_each_release(failing: str) -> None:
    fetched = "".join(f"fetch {MIRROR}/{each}/x86_64/APKINDEX.tar.gz\n" for each in ("main", "community"))
    host = alpine(Told("apk update", f"{fetched}v3.19.1-5 [{MIRROR}/main]\n", f"{failing}1 errors; 15 distinct\n", 1))
    assert (await called(host, "pkg.refresh_db")).value == {
        f"{MIRROR}/main/x86_64/APKINDEX.tar.gz": True,
        f"{MIRROR}/community/x86_64/APKINDEX.tar.gz": False,
    }


async def test_apk_lists_alpines_versions_and_openwrts() -> None:
    said = "musl-1.2.4-r2\nca-certificates-20230506-r0\nluci-app-bcp38-24.304.46082~f9899fd\nlibcrypto3-3.1.4-r5\n"
    assert (await called(alpine(Told("apk info -v", said)), "pkg.list_pkgs")).value == {
        "musl": "1.2.4-r2",
        "ca-certificates": "20230506-r0",
        "luci-app-bcp38": "24.304.46082~f9899fd",
        "libcrypto3": "3.1.4-r5",
    }


async def test_apk_installs_upgrades_and_removes() -> None:
    old, new = "musl-1.2.4-r1\n", "musl-1.2.4-r1\ncurl-8.5.0-r0\n"
    host = alpine(
        Told("apk info -v", old),
        Told("apk add --upgrade -- curl", "(1/1) Installing curl (8.5.0-r0)\nOK: 9 MiB in 16 packages\n"),
        Told("apk info -v", new),
    )
    assert (await called(host, "pkg.install", "curl")).value == {"curl": {"old": "", "new": "8.5.0-r0"}}
    why = "ERROR: unable to select packages:\n  curl-8.5.0-r0:\n    breaks: world[curl=9]\n"
    host = alpine(Told("apk info -v", old), Told("apk add --upgrade -- curl=9", "", why, 1), Told("apk info -v", old))
    ended = await called(host, "pkg.install", "curl", version="9")
    assert (ended.outcome, ended.value, "breaks: world" in ended.why) == ("failed", {}, True)
    host = alpine(
        Told("apk upgrade --simulate", "(1/1) Upgrading musl (1.2.4-r1 -> 1.2.4-r2)\nOK: 9 MiB in 15 packages\n")
    )
    assert (await called(host, "pkg.list_upgrades", refresh=False)).value == {"musl": "1.2.4-r2"}
    host = alpine(
        Told("apk info -v", old),
        Told("apk upgrade", "(1/1) Upgrading musl (1.2.4-r1 -> 1.2.4-r2)\nOK: 9 MiB in 15 packages\n"),
        Told("apk info -v", "musl-1.2.4-r2\n"),
    )
    assert (await called(host, "pkg.upgrade", refresh=False)).value == {"musl": {"old": "1.2.4-r1", "new": "1.2.4-r2"}}
    host = alpine(
        Told("apk info -v", new),
        Told("apk del --purge -- curl", "(1/1) Purging curl (8.5.0-r0)\nOK: 7 MiB in 15 packages\n"),
        Told("apk info -v", old),
    )
    gone = {"installed": {"curl": {"old": "8.5.0-r0", "new": ""}}, "removed": {}}
    assert (await called(host, "pkg.purge", "curl")).value == gone


async def test_apk_holds_by_wanting_one_version() -> None:
    host = alpine(
        Told("cat /etc/apk/world", "alpine-base\ncurl\n"),
        Told("apk info -v", "curl-8.5.0-r0\n"),
        Told("apk add -- curl=8.5.0-r0", "OK: 9 MiB in 16 packages\n"),
    )
    assert (await called(host, "pkg.hold", "curl")).value["curl"]["changes"] == {"old": "install", "new": "hold"}
    host = alpine(Told("cat /etc/apk/world", "alpine-base\ncurl=8.5.0-r0\nopenssh>9\n"))
    assert (await called(host, "pkg.list_holds")).value == ["curl"]


async def test_apk_describes() -> None:
    said = (
        "curl-8.5.0-r0 description:\nURL retrieval utility and library\n\n"
        "curl-8.5.0-r0 webpage:\nhttps://curl.se/\n\ncurl-8.5.0-r0 installed size:\n244 KiB\n\n"
    )
    host = alpine(Told("apk info -v", "curl-8.5.0-r0\n"), Told("apk info -dws -- curl", said))
    assert (await called(host, "pkg.info_installed", "curl")).value == {
        "curl": {
            "name": "curl",
            "version": "8.5.0-r0",
            "description": "URL retrieval utility and library",
            "url": "https://curl.se/",
            "size": "244 KiB",
        }
    }


# --- OpenRC -----------------------------------------------------------------------------------------------------------

EXISTS = Told("rc-service --exists sshd")
SHOWN = (
    "           bootmisc | boot                                          \n"
    "              crond |      default                                  \n"
    "               sshd |                                               \n"
)


async def test_openrc_starts_stops_and_says_whether_it_runs() -> None:
    host = openrc(Told("rc-service sshd status", " * status: started\n"))
    assert (await called(host, "service.status", "sshd")).value is True
    host = openrc(Told("rc-service sshd status", " * status: stopped\n", "", 3))
    assert (await called(host, "service.status", "sshd")).value is False
    for verb, sent in (("start", "start"), ("stop", "stop"), ("restart", "restart"), ("force_reload", "reload")):
        host = openrc(EXISTS, Told(f"rc-service sshd {sent}", " * Caching service dependencies ... [ ok ]\n"))
        assert (await called(host, f"service.{verb}", "sshd")).value is True
    host = openrc(EXISTS, Told("rc-service sshd start", "", " * ERROR: sshd failed to start\n", 1))
    ended = await called(host, "service.start", "sshd")
    assert (ended.outcome, ended.why) == ("failed", "* ERROR: sshd failed to start")
    ended = await called(openrc(EXISTS._replace(returncode=1)), "service.start", "sshd")
    assert (ended.outcome, "no service 'sshd'" in ended.why) == ("failed", True)


async def test_openrc_has_services_in_runlevels() -> None:
    host = openrc(Told("rc-service --list", "sshd\nbootmisc\ncrond\n"))
    assert (await called(host, "service.get_all")).value == ["bootmisc", "crond", "sshd"]
    shown = Told("rc-update --verbose show", SHOWN)
    assert (await called(openrc(shown), "service.get_enabled")).value == ["bootmisc", "crond"]
    assert (await called(openrc(shown), "service.get_disabled")).value == ["sshd"]
    assert (await called(openrc(shown), "service.enabled", "sshd")).value is False
    host = openrc(EXISTS, Told("rc-update add sshd default", " * service sshd added to runlevel default\n"))
    assert (await called(host, "service.enable", "sshd")).value is True
    host = openrc(EXISTS, Told("rc-update --all del sshd", " * service sshd removed from runlevel default\n"))
    assert (await called(host, "service.disable", "sshd")).value is True
