"""The holders of the root keys sign a list in which two keys have one name (kid), by mistake or because two of them are
bad: whoever looks up a signer in it would find one of two. Nobody takes it: no command from a file, no station and no
device over the wire.

Two keys with one name are found in about 2^32 hashes, the work of minutes: a pair is below. The same key in two places
costs nothing, and would make one holder two of three.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import EXIT_OK
from device_agent.identity import IdentityFile
from device_agent.protocol import topics
from device_agent.trust import codec, cose_sign
from device_agent.trust.claims import MASTERS, ROOTS, VER
from device_agent.trust.keys import SigningKey, kid
from device_agent.trust.notices import bundle, read_bundle
from device_agent.trust.root_list import ROOT_TYP, MasterKey
from gateway.fleet.bundle import Bundle
from gateway.fleet.ceremony import ROOT_LISTS, UNFINISHED
from gateway.fleet.description import describe
from gateway.fleet.root_keys import read_root_key
from tests.peers.broker import free_port
from tests.peers.rope import PlayedMaster, played_master
from tests.peers.stolen_disk import StolenDisk
from tests.peers.stranger import Stranger, stranger
from tests.peers.system import System, whole_system
from upstream import frames

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

TWINS = (
    bytes.fromhex("65c9584f8ededc6f") + b"of two keys with one nam",
    bytes.fromhex("a2f272f47491eb47") + b"of two keys with one nam",
)
"""Two keys that nobody has the private halves of; a search that looks for those too takes longer, and no more."""

SIG, NAME = 1, 4
"""What a master's signing key and name are under in a root list."""


class Holders:
    """All three root keys in one hand, and what is signed with them that no honest program signs."""

    def __init__(self, system: System) -> None:
        self.ceremony = system.fleet.ceremony
        self.keys: list[SigningKey] = [
            read_root_key(path).key for path in sorted(self.ceremony.folder.glob("root-*.key"))
        ]
        self.current: dict[int, Any] = cose_sign.read(self.ceremony.chain()[-1], ROOT_TYP).claims

    def next(self, *keys: SigningKey, **changes: list[Any]) -> bytes:
        """The list after the newest one; by all of them unless the test says otherwise."""
        labels = {"roots": ROOTS, "masters": MASTERS}
        changed = {labels[name]: value for name, value in changes.items()}
        claims = {**self.current, VER: self.current[VER] + 1, **changed}
        return cose_sign.sign(list(keys) or self.keys, ROOT_TYP, claims)

    def masters(self, *sigs: bytes) -> list[Any]:
        """Those there are, and one more for each of these keys."""
        known = self.current[MASTERS]
        return [*known, *({**known[-1], SIG: sig, NAME: f"twin-{place}"} for place, sig in enumerate(sigs))]

    def forged(self) -> dict[str, bytes]:
        """Everything that has two keys of one name."""
        roots, [*_, master] = self.current[ROOTS], self.current[MASTERS]
        return {
            "two root keys": self.next(roots=[*roots, *TWINS]),
            "one holder twice": self.next(roots=[roots[0], roots[0], roots[1]]),
            "two masters": self.next(masters=self.masters(*TWINS)),
            "one master twice": self.next(masters=self.masters(master[SIG])),
            "a master that is a holder": self.next(masters=self.masters(roots[0])),
        }


def test_the_two_keys_are_two_and_have_one_name() -> None:
    assert len(set(TWINS)) == 2
    assert {len(key) for key in TWINS} == {32}
    assert len({kid(key) for key in TWINS}) == 1


async def test_nobody_takes_a_root_list_in_which_two_keys_have_one_name() -> None:
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_agent("cam-1", "lisbon")
        system.present(1)
        holders = Holders(system)
        before = standing(system)
        for what, body in holders.forged().items():
            refuses(system, "fleet", "publish", written(system, holders, body), what=what)
        for what in ("two root keys", "two masters"):
            from_a_file(system, holders, holders.forged()[what], what)
        with_the_tools_of_a_ceremony(system, holders)
        async with stranger(system, "lisbon") as somebody, played_master() as link:
            await with_a_bad_master(system, link)
            for times, body in enumerate(holders.forged().values(), start=1):
                await over_the_wire(system, holders, somebody, link, body, times)
        assert standing(system) == before
        assert on_flash(system) == holders.current[VER]

        # The same hands and the same ways, and two keys with two names: everybody takes it.
        good = holders.next(masters=holders.masters(TWINS[0]))
        file = written(system, holders, good)
        for station in ("central", "lisbon"):
            system.command("fleet", "publish", file, station=station, status=EXIT_OK)
            assert system.view(station, "/fleet")["masters"][-1] == "twin-0"


def standing(system: System) -> list[Any]:
    """The root list that every station has, in memory and on disk."""
    return [
        (system.view(station, "/fleet")["root_version"], (system.state_of(station) / ROOT_LISTS).read_bytes())
        for station in ("central", "lisbon")
    ]


def on_flash(system: System) -> int:
    """The version that the camera has, when it has stopped."""
    system.stop("cam-1")
    kept = IdentityFile(system.folder / "cam-1").load()
    assert kept is not None
    assert kept.anchor.root is not None
    return kept.anchor.root.version


def written(system: System, holders: Holders, body: bytes, name: str = "carried") -> str:
    """The file that goes from the folder of the ceremony to the stations."""
    path = system.folder / name
    path.write_bytes(codec.encode([*holders.ceremony.chain(), body]))
    path.chmod(0o600)
    return str(path)


def refuses(system: System, *words: str, what: str, station: str = "central") -> None:
    done = system.command(*words, station=station)
    assert (done.status != EXIT_OK, "doubled_kid" in done.error) == (True, True), (what, words, done)


# --- from a file -----------------------------------------------------------------------------------------------------


def from_a_file(system: System, holders: Holders, body: bytes, what: str) -> None:
    """Every command that takes root lists from a file."""
    file = written(system, holders, body)
    refuses(system, "fleet", "publish", file, station="lisbon", what=what)
    refuses(system, "master", "init", "--root-list", file, "--config", never_ran(system), what=what)
    assert not (system.state_of("newcomer") / ROOT_LISTS).exists()

    certificate = StolenDisk(system.state_of("lisbon"), "lisbon").certificate
    carried = system.folder / "lisbon.bundle"
    carried.write_text(Bundle((*holders.ceremony.chain(), body), certificate).text())
    config = f"{system.folder}/lisbon.yaml"
    refuses(system, "gateway", "join", "--bundle", str(carried), "--config", config, station="lisbon", what=what)

    folder = system.folder / "ceremony"
    folder.mkdir(exist_ok=True)
    Path(written(system, holders, body)).rename(folder / ROOT_LISTS)
    key = str(holders.ceremony.folder / "root-1.key")
    refuses(system, "fleet", "add-master", described(system), "--folder", str(folder), "--key", key, what=what)
    refuses(system, "fleet", "show", str(folder / ROOT_LISTS), what=what)


def never_ran(system: System) -> str:
    """The settings of a master that has not been started yet."""
    listen = {"listen": f"tcp://127.0.0.1:{free_port()}"}
    places = {"name": "newcomer", "state_dir": str(system.state_of("newcomer"))}
    return system._write("newcomer", {**places, "socket": str(system.socket_of("newcomer")), "sites": listen})


def described(system: System) -> str:
    """The description of a master that is what it says."""
    disk = StolenDisk(system.state_of("central"), "central")
    address = (system.address("central")["address"],)
    return describe(disk.signing, MasterKey("central", disk.signing.public, disk.kem.public, bytes(32), address, ()))


def with_the_tools_of_a_ceremony(system: System, holders: Holders) -> None:
    """One signature was made elsewhere, with another program; or a holder describes himself as a master."""
    folder = system.folder / "half-signed"
    folder.mkdir()
    (folder / ROOT_LISTS).write_bytes(system.fleet.file().read_bytes())
    body = holders.next(holders.keys[0], masters=holders.masters(*TWINS))
    (folder / UNFINISHED).write_bytes(body)
    key = str(holders.ceremony.folder / "root-2.key")
    refuses(system, "fleet", "add-signature", "--folder", str(folder), "--key", key, what="half signed")
    assert (folder / UNFINISHED).read_bytes() == body

    (folder / UNFINISHED).unlink()
    holder = holders.keys[0]
    line = describe(holder, MasterKey("holder", holder.public, bytes(32), bytes(32), ("tcp://192.0.2.1:4510",), ()))
    refuses(system, "fleet", "add-master", line, "--folder", str(folder), "--key", key, what="a holder as a master")
    assert (folder / ROOT_LISTS).read_bytes() == system.fleet.file().read_bytes()


# --- over the wire ---------------------------------------------------------------------------------------------------


async def with_a_bad_master(system: System, link: PlayedMaster) -> None:
    """The settings of the gateway lead to somebody else."""
    address = {"address": link.address.address, "key": link.address.key}
    system.change("lisbon", masters=[address])
    system.children["lisbon"].process.send_signal(signal.SIGHUP)

    def there() -> bool:
        uplink = system.view("lisbon")["uplink"]
        return (uplink["master"], uplink["state"]) == (address["address"], "connected")

    await asyncio.to_thread(system.until, there, "lisbon is with somebody else")


async def over_the_wire(
    system: System, holders: Holders, somebody: Stranger, link: PlayedMaster, body: bytes, times: int
) -> None:
    """A gateway by its link to a master, by its API, and a device by the retained message of its site."""
    chain = [*holders.ceremony.chain(), body]
    await link.say(frames.SiteTrust(root_lists=chain))
    await asyncio.to_thread(
        system.until, lambda: system.refusals("lisbon")["uplink", "doubled_kid"] == times, "the gateway refuses it"
    )
    if times == 1:
        await somebody.listen("lisbon")
    honest = read_bundle(await somebody.hears("/trust", bool))
    told = bundle(chain, honest.site_certificates, honest.prekey, honest.revocations)
    seen = system.log("cam-1").count("refused reason=doubled_kid ")
    await somebody.say([(topics.trust("lisbon"), told)])
    # A device says the first of a kind; that it goes on, and by which list, is asked below.
    await asyncio.to_thread(
        system.until, lambda: seen or "refused reason=doubled_kid " in system.log("cam-1"), "the device refuses it"
    )
