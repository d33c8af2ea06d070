"""What pkg.* must do, with the real apt and dpkg and a repository of one package in two versions."""

from __future__ import annotations

from tests.peers.function_story import Sh, Step, Story

REPOSITORY = r"""set -e
mkdir -p /srv/repo
for version in 1.0 1.1; do
    folder=/tmp/toy-$version; mkdir -p $folder/DEBIAN $folder/etc
    {
        echo "Package: outstation-toy"; echo "Version: $version"; echo "Architecture: all"; echo "Section: misc"
        echo "Maintainer: A <a@example.com>"; echo "Homepage: https://example.com"
        echo "Description: a toy"; echo " for tests"
    } >$folder/DEBIAN/control
    echo /etc/toy.conf >$folder/DEBIAN/conffiles; echo setting >$folder/etc/toy.conf
    dpkg-deb -b $folder /srv/repo/outstation-toy_${version}_all.deb >/dev/null
done
rm -rf /etc/apt/sources.list.d/* /var/lib/apt/lists/*
cd /srv/repo
for file in *.deb; do
    dpkg-deb -f $file; echo "Filename: ./$file"; echo "Size: $(stat -c %s $file)"
    echo "SHA256: $(sha256sum $file | cut -d' ' -f1)"; echo
done >Packages
echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list"""

TOY = "outstation-toy"

LISTS_HELD = """perl -e '
use Fcntl;
open my $lock, ">", "/var/lib/apt/lists/lock" or die;
my $whole = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($lock, F_SETLK, $whole) or die;
open my $held, ">", "/tmp/held" or die;
sleep 2' >/dev/null 2>&1 &
for turn in $(seq 100); do [ -e /tmp/held ] && exit 0; sleep 0.1; done
exit 1"""
"""As an update that the device makes by itself holds it."""

BROKEN = r"""set -e
folder=/tmp/outstation-broken; mkdir -p $folder/DEBIAN
{
    echo "Package: outstation-broken"; echo "Version: 1.0"; echo "Architecture: all"
    echo "Maintainer: A <a@example.com>"; echo "Description: it cannot be configured"
} >$folder/DEBIAN/control
printf '#!/bin/sh\nexit 1\n' >$folder/DEBIAN/postinst; chmod 755 $folder/DEBIAN/postinst
dpkg-deb -b $folder /tmp/broken.deb >/dev/null
dpkg -i /tmp/broken.deb >/dev/null 2>&1 || :
dpkg-query -W -f '${db:Status-Status}' outstation-broken"""

STORIES = (
    Story(
        "lists that another program fetches are waited for",
        ("debian",),
        (
            Sh(REPOSITORY),
            Sh(LISTS_HELD, salt=False),
            Step("pkg.refresh_db", value=bool, salt="no"),
        ),
    ),
    Story(
        "a package that could not be configured is removed",
        ("debian",),
        (
            Sh(REPOSITORY),
            Sh(BROKEN, "half-configured"),
            Step("pkg.version", ("outstation-broken",), value=""),
            Step(
                "pkg.remove",
                ("outstation-broken",),
                value={"outstation-broken": {"old": "1.0", "new": ""}},
                salt="differs",
            ),
            Sh("dpkg -l outstation-broken 2>/dev/null | grep -c ^iF; :", "0", salt=False),
        ),
    ),
    Story(
        "a package is installed, held, upgraded, removed and purged",
        ("debian",),
        (
            Sh(REPOSITORY),
            Step("pkg.refresh_db", value=lambda sources: bool(sources) and True in sources.values()),
            Step("pkg.latest_version", (TOY,), {"refresh": False}, value="1.1"),
            Step("pkg.latest_version", (TOY, "nothing-such"), value={TOY: "1.1", "nothing-such": ""}, salt="differs"),
            Step("pkg.version", (TOY,), value=""),
            Step("pkg.install", (), {"pkgs": [{TOY: "1.0"}]}, value={TOY: {"old": "", "new": "1.0"}}),
            Step("pkg.version", (TOY,), value="1.0"),
            Step("pkg.version", ("outstation-*", "nothing-such"), value={TOY: "1.0", "nothing-such": ""}),
            Step("pkg.list_pkgs", value=lambda found: found[TOY] == "1.0" and "dpkg" in found),
            Step("pkg.list_pkgs", (True,), value=lambda found: found[TOY] == ["1.0"]),
            Step("pkg.upgrade_available", (TOY,), value=True),
            Step("pkg.list_upgrades", value={TOY: "1.1"}),
            Step(
                "pkg.hold",
                (TOY,),
                value={
                    TOY: {
                        "name": TOY,
                        "changes": {"old": "install", "new": "hold"},
                        "result": True,
                        "comment": f"Package {TOY} is now being held.",
                    }
                },
            ),
            Step("pkg.list_holds", value=[TOY], salt="no"),
            Step("pkg.version", (TOY,), value="1.0"),
            Step("pkg.list_upgrades", value={}),
            Step("pkg.unhold", (TOY,), value=lambda found: found[TOY]["changes"] == {"old": "hold", "new": "install"}),
            Step("pkg.unhold", (TOY,), value=lambda found: found[TOY]["changes"] == {}),
            Step(
                "pkg.hold",
                ("nothing-such",),
                outcome="failed",
                value=lambda found: not found["nothing-such"]["result"],
                salt="no",
            ),
            Sh("echo mine >/etc/toy.conf"),
            Step("pkg.upgrade", value={TOY: {"old": "1.0", "new": "1.1"}}),
            Sh("cat /etc/toy.conf", "mine"),
            Step("pkg.upgrade_available", (TOY,), value=False),
            Step("pkg.install", (f"{TOY},dpkg",), value={}),
            Step("pkg.install", (TOY,), {"reinstall": True}, value={TOY: {"old": "1.1", "new": "1.1"}}),
            Step("pkg.install", (TOY,), {"version": "1.0"}, value={TOY: {"old": "1.1", "new": "1.0"}}),
            Step("pkg.install", (TOY,), {"version": 1.0}, value={}, salt="differs"),
            Step(
                "pkg.info_installed",
                (TOY,),
                value=lambda found: (
                    {key: value for key, value in found[TOY].items() if key in {"name", "version", "group", "source"}}
                    == {"name": TOY, "version": "1.0", "group": "misc", "source": TOY}
                    and found[TOY]["description"].startswith("a toy\n")
                    and found[TOY]["install_date"].endswith("Z")
                ),
            ),
            Step("pkg.info_installed", ("nothing-such",), outcome="failed", why="not installed"),
            Step("pkg.remove", (TOY,), value={TOY: {"old": "1.0", "new": ""}}),
            Step("pkg.remove", (TOY,), value={}),
            Step("pkg.list_pkgs", (), {"removed": True}, value=lambda found: found[TOY] == "1.0"),
            Step("pkg.purge", (TOY,), value={"removed": {TOY: {"old": "1.0", "new": ""}}, "installed": {}}),
            Step("pkg.purge", (TOY,), value={}),
            Step(
                "pkg.install",
                (),
                {"sources": [{TOY: "/srv/repo/outstation-toy_1.0_all.deb"}]},
                value={TOY: {"old": "", "new": "1.0"}},
            ),
            Step("pkg.install", ("nothing-such",), outcome="failed", value={}, why="Unable to locate", salt="differs"),
            Step("pkg.install", ("--force-yes",), outcome="failed", why="begin with '-'", salt="differs"),
            Step("pkg.install", outcome="failed", why="no package is named", salt="differs"),
        ),
    ),
    Story(
        "a device without packages says so",
        ("busybox", "busybox-ssh"),
        (Step("pkg.list_pkgs", outcome="failed", why="no apt-get and no apk and no opkg"),),
    ),
)
