"""The fleet of a rehearsal: the same ceremony as for a real one, with all of it in one folder and thrown away after.

The demo says these commands aloud; here they are called, since a test needs a fleet in no time.
"""

from __future__ import annotations

from pathlib import Path

from device_agent.clock import Clock
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MasterKey
from device_agent.trust.site_certificate import sign_site_certificate
from device_agent.trust.token import SiteToken
from gateway.fleet.ceremony import ROOT_LISTS, SITE_AUTHORITY, Ceremony
from gateway.fleet.grants import DAY_SECONDS, LONGEST_DAYS
from gateway.fleet.station_files import Joined, KnownMaster, StationFiles, load_or_make_keys
from upstream.curve import key_bytes, key_text, load_or_make


class RehearsedFleet:
    """Root keys, and the masters and gateways that were added so far."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.ceremony = Ceremony(folder)
        self._root_keys: list[Path] = []
        self._clock = clock or Clock()

    def add_master(self, name: str, state_dir: Path, *, address: str = "", root_shell: bool = True) -> None:
        """Give a master its keys and its place in the root list, before it starts for the first time."""
        self._begin()
        files = _files(state_dir)
        signing, kem = files.keys()
        curve = key_bytes(load_or_make(state_dir / "curve.key").public)
        master = MasterKey(name, signing.public, kem.public, curve, (address,) if address else ())
        self.ceremony.add_master(master, self._root_keys, self._clock.wall(), root_shell=root_shell)
        files.write_root_lists(self.ceremony.chain())

    def file(self) -> Path:
        """The root lists, as they are carried to a master."""
        return self.ceremony.folder / ROOT_LISTS

    def pin(self, state_dir: Path) -> None:
        """Tell a gateway whose fleet it is of, and not where it is."""
        self._begin()
        _files(state_dir).write_joined(Joined(self.ceremony.current().fingerprint))

    def certify(self, state_dir: Path, site: str, policy: SitePolicy | None = None) -> None:
        """Give a gateway that has no master a certificate by the fleet's offline authority."""
        self._begin()
        files = _files(state_dir)
        signing, kem = files.keys()
        curve = key_bytes(load_or_make(state_dir / "curve.key").public)
        authority, _ = load_or_make_keys(self.ceremony.folder / f"{SITE_AUTHORITY}.keys")
        now = int(self._clock.wall())
        files.write_root_lists(self.ceremony.chain())
        files.write_certificate(
            sign_site_certificate(
                authority,
                site=site,
                sig=signing.public,
                kem=kem.public,
                curve=curve,
                issued=now,
                expires=now + LONGEST_DAYS * DAY_SECONDS,
                policy=policy,
            )
        )

    def _begin(self) -> None:
        if not self._root_keys:
            _, keys = self.ceremony.begin(self._clock.wall(), standalone=True)
            self._root_keys = [key.path for key in keys]

    @staticmethod
    def join(state_dir: Path, token: str) -> None:
        """Tell a gateway where its fleet is, before it starts for the first time."""
        read = SiteToken.from_text(token)
        key = key_text(read.curve)
        joined = Joined(read.root, tuple(KnownMaster(address, key) for address in read.addresses))
        _files(state_dir).write_joined(joined)


def _files(state_dir: Path) -> StationFiles:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return StationFiles(state_dir)
