"""What somebody has who has taken the state folder of a station: its keys, what is in its store, what he signs with it.

He is not bound by what the station's own program would refuse to do.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from device_agent.trust import hpke
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.device_certificate import DeviceCertificate, read_device_certificate
from device_agent.trust.keys import KemKey
from device_agent.trust.sessions import sign_prekey
from device_agent.trust.signed_job import ALL, JobHeader, Order, seal_for_device, seal_for_group
from device_agent.trust.site_certificate import read_site_certificate
from device_agent.trust.site_request import sign_site_request
from gateway.cli.client import StationClient
from gateway.devices.epochs import master_info
from gateway.fleet.station_files import StationFiles
from tests.peers.system import System
from upstream import frames
from upstream.curve import CurveKeys, key_bytes, load_or_make

STORE = "station.sqlite"
RUN = "import sys; from gateway.cli.main import main; sys.exit(main(sys.argv[1:]))"

WILLING = """\
import gateway.jobs.seal
gateway.jobs.seal.Sealer.may_issue = lambda *_: None
gateway.jobs.seal.Sealer.longest = lambda *_: None
"""
"""A change to a station's program: it asks itself no more whether it may order what it is told to."""

_jids = itertools.count(1)


def now() -> int:
    """The right time."""
    return int(time.time())  # noqa: TID251 - what is signed here is held against the time of real processes


class StolenDisk:
    """A copy of a state folder, and everything that can be had from it."""

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.site = site
        files = StationFiles(folder)
        self.signing, self.kem = files.keys()
        self.certificate = files.certificate()
        self.root_lists = files.root_lists()

    @property
    def curve(self) -> CurveKeys:
        """The keys of its uplink."""
        return load_or_make(self.folder / "curve.key")

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """What is in its store."""
        with closing(sqlite3.connect(self.folder / STORE)) as connection:
            return connection.execute(sql, values).fetchall()

    def group_keys(self) -> dict[int, bytes]:
        """The site's group keys, by epoch."""
        return dict(self.rows("SELECT epoch, key FROM epochs WHERE kid = ?", self.signing.kid))

    def told_group_key(self, site: str) -> tuple[int, bytes]:
        """The epoch and the group key that a site has told this master."""
        [(body,)] = self.rows("SELECT group_keys FROM site_trust WHERE site = ?", site)
        told = frames.decode_group_keys(body)
        kid = read_site_certificate(told.certificate).kid
        info = master_info(site, kid, told.epoch)
        return told.epoch, hpke.open_sealed(self.kem, info, dict(told.keys)[self.signing.kid])

    def opening_keys(self) -> list[KemKey]:
        """Everything that opens what was sealed to the station."""
        return [self.kem, *(KemKey(private) for (private,) in self.rows("SELECT private FROM prekeys"))]

    def devices(self) -> dict[str, DeviceCertificate]:
        """The devices that belong to it, by name."""
        rows = self.rows("SELECT certificate FROM enrolled WHERE state = 'accepted'")
        return {read.name: read for read in (read_device_certificate(body) for (body,) in rows)}

    def contents(self) -> bytes:
        """Every byte on the disk."""
        return b"\0".join(path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file())

    def request(self) -> bytes:
        """What it asks its certificate with."""
        return sign_site_request(
            self.signing,
            site=self.site,
            kem=self.kem.public,
            curve=key_bytes(self.curve.public),
            nonce=os.urandom(16),
            issued=now(),
        )

    def prekey(self) -> bytes:
        """A prekey of his own."""
        public = KemKey(os.urandom(32)).public
        return sign_prekey(self.signing, site=self.site, public=public, issued=now(), instance=os.urandom(8))

    # --- what he signs ---------------------------------------------------------------------------------------------

    def job(self, fun: str, *arg: Any, site: str = "", group: tuple[int, bytes] | None = None, **fields: Any) -> bytes:
        """A job for everybody at a site, by this station's key, as it is delivered."""
        epoch, key = group or max(self.group_keys().items())
        header = self._header(ALL, site, fields, epoch=epoch)
        body = seal_for_group(self.signing, header, _order(fun, arg), key, os.urandom(16))
        return job_delivery(body, 300.0, None)

    def job_for(self, device: DeviceCertificate, fun: str, *arg: Any, site: str = "", **fields: Any) -> bytes:
        """A job for one device, by this station's key, as it is delivered."""
        header = self._header(device.did_text, site, fields)
        return job_delivery(seal_for_device(self.signing, header, _order(fun, arg), device.kem), 300.0, None)

    def _header(self, sub: str, site: str, fields: Mapping[str, Any], **more: Any) -> JobHeader:
        issued = now()
        given = {
            "sub": sub,
            "site": site or self.site,
            "issued": issued,
            "expires": issued + 300,
            "jid": f"2{next(_jids):019d}",
            "seq": time.time_ns() // 1_000_000,  # noqa: TID251 - as the station's own numbers are
            "tgt": "*",
            **more,
        }
        return JobHeader(**{**given, **fields})


def _order(fun: str, arg: tuple[Any, ...]) -> Order:
    return Order(fun=fun, arg=list(arg), user="thief")


def stolen(system: System, name: str, copy: str, site: str | None = None) -> StolenDisk:
    """Copy the state folder of a station."""
    target = system.folder / copy
    shutil.copytree(system.state_of(name), target, ignore=shutil.ignore_patterns("lock"))
    return StolenDisk(target, site or name)


def run_changed(system: System, name: str, role: str, change: str, settings: Mapping[str, Any]) -> StationClient:
    """Start a station in its folder with a changed program; returns when it answers."""
    given = {"name": name, "state_dir": str(system.state_of(name)), "socket": str(system.socket_of(name)), **settings}
    system._settings[name], system._roles[name] = given, role
    path = system._write(name, given)
    system.start(name, [sys.executable, "-c", f"{change}\n{RUN}", role, "run", "--config", path])
    return system.answering(name)
