"""device_agent/packages: what apt, opkg and apk print, taken apart.

What opkg and apk print was written down from their documentation and their source; no OpenWrt and no Alpine was there
to ask. apt itself is asked in tests/integration/test_functions_on_a_device.py.
"""

from __future__ import annotations

from device_agent.packages import apk, apt, opkg


def test_apt_lists_what_is_installed_and_marks_other_architectures() -> None:
    listed = (
        "install ok installed dpkg 1.21.22 amd64\n"
        "hold ok installed libc6 2.36-9 i386\n"
        "install ok installed tzdata 2024a all\n"
        "deinstall ok config-files toy 1.0 all\n"
        "broken line\n"
    )
    assert apt.selected(listed, "installed") == {"dpkg": "1.21.22", "libc6:i386": "2.36-9", "tzdata": "2024a"}
    assert apt.selected(listed, "config-files") == {"toy": "1.0"}


def test_apt_says_of_each_source_what_became_of_it() -> None:
    said = (
        "Hit:1 http://b.example/debian stable InRelease\n"
        "Get:2 http://b.example/security stable-security InRelease [48.0 kB]\n"
        "Ign:3 http://a.example stable InRelease\n"
        "Err:4 http://a.example stable Release\n"
        "Reading package lists...\n"
    )
    assert apt.refreshed(said) == {
        "http://b.example/debian stable InRelease": None,
        "http://b.example/security stable-security InRelease": True,
        "http://a.example stable InRelease": False,
        "http://a.example stable Release": False,
    }


def test_apt_says_what_would_be_newer() -> None:
    said = "Inst bash [5.2.15-2+b7] (5.2.15-2+b8 Debian:12.9/stable [amd64])\nInst new (1.0 x [all])\nConf bash (x)\n"
    assert apt.simulated(said) == {"bash": "5.2.15-2+b8"}
    policy = "bash:\n  Installed: 5.1\n  Candidate: 5.2\n  Version table:\n     5.2 500\n"
    policy += "no:\n  Installed: (none)\n  Candidate: (none)\n"
    assert apt.policies(policy) == {"bash": ("5.1", "5.2"), "no": ("", "")}


def test_opkg_lists() -> None:
    assert opkg.listed("base-files - 1562-r24106\nip-full - 6.3.0-1 - Routing control\n") == {
        "base-files": "1562-r24106",
        "ip-full": "6.3.0-1",
    }
    assert opkg.upgradable("curl - 8.6.0-1 - 8.7.1-r1\n") == {"curl": "8.7.1-r1"}


def test_opkg_says_of_each_source_what_became_of_it() -> None:
    said = (
        "Downloading https://downloads.openwrt.org/releases/23.05.3/packages/x/base/Packages.gz\n"
        "Updated list of available packages in /var/opkg-lists/openwrt_base\n"
        "Downloading https://downloads.openwrt.org/releases/23.05.3/packages/x/luci/Packages.gz\n"
        "*** Failed to download the package list from "
        "https://downloads.openwrt.org/releases/23.05.3/packages/x/luci/Packages.gz\n"
    )
    assert opkg.refreshed(said) == {
        "https://downloads.openwrt.org/releases/23.05.3/packages/x/base/Packages.gz": True,
        "https://downloads.openwrt.org/releases/23.05.3/packages/x/luci/Packages.gz": False,
    }


def test_opkg_describes() -> None:
    said = (
        "Package: curl\nVersion: 8.6.0-1\nStatus: install hold installed\nDescription: a tool\n of many lines\n\n"
        "Package: wget\nVersion: 1\nStatus: install user installed\n"
    )
    first, second = opkg.records(said)
    assert first == {
        "package": "curl",
        "version": "8.6.0-1",
        "status": "install hold installed",
        "description": "a tool\nof many lines",
    }
    assert second["package"] == "wget"


def test_apk_lists_names_that_have_numbers() -> None:
    said = (
        "musl-1.2.4-r2\npy3-yaml-6.0.1-r1\nlibcrypto3-3.1.4-r5\nca-certificates-20230506-r0 - with words\nWARNING: x\n"
    )
    assert apk.listed(said) == {
        "musl": "1.2.4-r2",
        "py3-yaml": "6.0.1-r1",
        "libcrypto3": "3.1.4-r5",
        "ca-certificates": "20230506-r0",
    }


def test_apk_says_what_would_be_newer_and_what_was_fetched() -> None:
    said = "(1/2) Upgrading musl (1.2.4-r1 -> 1.2.4-r2)\n(2/2) Installing new (1-r0)\nOK: 9 MiB\n"
    assert apk.simulated(said) == {"musl": "1.2.4-r2"}
    assert apk.refreshed(
        "fetch https://a.example/main/x86_64/APKINDEX.tar.gz\nfetch https://b.example/main/x86_64/APKINDEX.tar.gz\n"
        "WARNING: Ignoring https://b.example/main: temporary error (try again later)\nOK: 5 distinct packages\n"
    ) == {
        "https://a.example/main/x86_64/APKINDEX.tar.gz": True,
        "https://b.example/main/x86_64/APKINDEX.tar.gz": False,
    }
