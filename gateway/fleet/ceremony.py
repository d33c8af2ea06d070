"""The root ceremony: the root list of a fleet and how it changes, in a folder of an offline machine.

    root-lists            every root list, oldest first: the file that is carried to the masters
    root-list.unfinished  the next one, as long as too few have signed it

A new list needs a threshold of the keys before and of its own keys. They need not be in one place: who signs later does
so with ``add_signatures``, on the same folder or on a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from device_agent.errors import ConfigInvalid, NotFound, Refused, UsageInvalid
from device_agent.trust import codec
from device_agent.trust.keys import fingerprint, kid, same_fingerprint
from device_agent.trust.root_list import (
    MASTER_ROLES,
    MasterKey,
    RootList,
    add_signature,
    follow,
    next_root_list,
    read_root_list,
    sign_root_list,
    signers,
)
from gateway.fleet.private_file import read_private, write_private
from gateway.fleet.root_keys import RootKey, described, make_root_key, read_root_key, root_keys_in
from gateway.fleet.station_files import FILE_BYTES, load_or_make_keys, read_bodies

ROOT_LISTS = "root-lists"
UNFINISHED = "root-list.unfinished"
SITE_AUTHORITY = "site-authority"
ROOT_KEYS = 3
THRESHOLD = 2


@dataclass(frozen=True)
class Progress:
    """Where a new root list stands. ``missing`` says in words whose signatures it still needs; empty when none."""

    root: RootList
    signed_by: tuple[str, ...]
    missing: tuple[str, ...]
    file: Path

    @property
    def complete(self) -> bool:
        """Whether it counts."""
        return not self.missing


class Ceremony:
    """One folder of a ceremony."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # --- what there is ---------------------------------------------------------------------------------------------

    def chain(self) -> list[bytes]:
        """The root lists so far. Raises ``UsageInvalid`` in a folder that has none."""
        body = read_private(self.folder / ROOT_LISTS, FILE_BYTES)
        if body is None:
            raise UsageInvalid(
                "this folder has no fleet",
                error_id="fleet.no_fleet",
                where=str(self.folder),
                allowed=f"the folder of `outstation fleet init`, with the file {ROOT_LISTS}",
                hint="outstation fleet … --folder DIR",
            )
        return checked_chain(body, str(self.folder / ROOT_LISTS))

    def current(self) -> RootList:
        """The newest complete root list."""
        return read_root_list(self.chain()[-1])

    def unfinished(self) -> bytes | None:
        """The next root list, while it lacks signatures."""
        return read_private(self.folder / UNFINISHED, FILE_BYTES)

    # --- what is done ----------------------------------------------------------------------------------------------

    def begin(self, now: float, *, standalone: bool) -> tuple[Progress, list[RootKey]]:
        """Make the root keys and the first root list. Raises ``UsageInvalid`` where there is a fleet already."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (self.folder / ROOT_LISTS).exists():
            raise UsageInvalid(
                "there is a fleet in this folder",
                error_id="fleet.exists",
                where=str(self.folder),
                found=f"version {self.current().version} of its root list",
                allowed="an empty folder",
                hint="outstation fleet init --folder OTHER",
            )
        keys = [make_root_key(self.folder, f"root-{number}") for number in range(1, ROOT_KEYS + 1)]
        masters: tuple[MasterKey, ...] = ()
        if standalone:
            sig, kem = load_or_make_keys(self.folder / f"{SITE_AUTHORITY}.keys")
            masters = (MasterKey(SITE_AUTHORITY, sig.public, kem.public, b"", roles=("site-ca", "root-shell")),)
        root = RootList(
            version=1,
            issued=int(now),
            threshold=THRESHOLD,
            roots=tuple(key.key.public for key in keys),
            masters=masters,
        )
        body = sign_root_list(root, [key.key for key in keys])
        write_private(self.folder / ROOT_LISTS, codec.encode([body]))
        return self._progress(body, root, complete=True), keys

    def add_master(self, master: MasterKey, keys: Sequence[Path], now: float, *, root_shell: bool) -> Progress:
        """A root list with one more master, or with new addresses and roles for one that stands there."""
        entry = replace(master, roles=(*MASTER_ROLES, *(("root-shell",) if root_shell else ())))

        def change(root: RootList) -> RootList:
            for other in root.masters:
                if other.name == entry.name and other.sig != entry.sig:
                    raise UsageInvalid(
                        f"another master is called {entry.name}",
                        error_id="fleet.name_taken",
                        found=fingerprint(other.sig),
                        allowed="a name for each master",
                        hint=f"outstation fleet drop-master {entry.name}, if that one is gone",
                    )
            kept = tuple(other for other in root.masters if other.sig != entry.sig)
            return replace(root, masters=(*kept, entry))

        return self._propose(change, keys, now)

    def drop_master(self, name: str, keys: Sequence[Path], now: float) -> Progress:
        """A root list without this master: whatever it signed or signs counts no more. Raises ``NotFound``."""

        def change(root: RootList) -> RootList:
            kept = tuple(master for master in root.masters if master.name != name)
            if len(kept) == len(root.masters):
                raise NotFound(
                    f"no master {name!r} in the root list",
                    found=", ".join(master.name for master in root.masters) or "no masters",
                    hint=f"outstation fleet show {self.folder / ROOT_LISTS}",
                )
            return replace(root, masters=kept)

        return self._propose(change, keys, now)

    def add_release_key(self, public: bytes, keys: Sequence[Path], now: float) -> Progress:
        """A root list with one more release key. Raises ``UsageInvalid`` for one that was dropped before."""

        def change(root: RootList) -> RootList:
            if kid(public) in root.revoked:
                raise UsageInvalid(
                    "this release key was dropped, and is not believed again",
                    error_id="fleet.revoked_key",
                    found=fingerprint(public),
                    allowed="a new one",
                    hint="outstation fleet release key FILE",
                )
            return replace(root, releases=tuple(dict.fromkeys((*root.releases, public))))

        return self._propose(change, keys, now)

    def drop_release_key(self, named: str, keys: Sequence[Path], now: float) -> Progress:
        """A root list without the release key of this fingerprint: what it signed runs nowhere. Raises ``NotFound``."""

        def change(root: RootList) -> RootList:
            gone = [public for public in root.releases if same_fingerprint(named, fingerprint(public))]
            if not gone:
                raise NotFound(
                    f"no release key {named!r} in the root list",
                    found=", ".join(map(fingerprint, root.releases)) or "no release keys",
                    hint=f"outstation fleet show {self.folder / ROOT_LISTS}",
                )
            kept = tuple(public for public in root.releases if public not in gone)
            return replace(root, releases=kept, revoked=(*root.revoked, *map(kid, gone)))

        return self._propose(change, keys, now)

    def rotate(self, replaced: Sequence[str], keys: Sequence[Path], now: float) -> tuple[Progress, list[RootKey]]:
        """The same list issued anew, with new keys in place of the root keys of these names. Raises ``NotFound``."""
        self._need_finished()
        names = self.root_names()
        current = self.current()
        standing = {names[public]: public for public in current.roots}
        for name in replaced:
            if name not in standing:
                raise NotFound(
                    f"no root key {name!r} in the root list",
                    found=", ".join(standing),
                    hint=f"outstation fleet show {self.folder / ROOT_LISTS}",
                )
        gone = {standing[name] for name in replaced}
        holders = self._holders(keys, current)
        fresh = [self._new_key(f"root-{len(names) + place}") for place in range(1, len(gone) + 1)]
        kept = tuple(public for public in current.roots if public not in gone)
        roots = (*kept, *(key.key.public for key in fresh))
        return self._sign(replace(current, roots=roots), [*holders, *fresh], now), fresh

    def add_signatures(self, keys: Sequence[Path]) -> Progress:
        """Sign the unfinished root list with these keys too. Raises ``UsageInvalid`` when there is none."""
        body = self.unfinished()
        if body is None:
            raise UsageInvalid(
                "no root list waits for signatures here",
                error_id="fleet.nothing_to_sign",
                where=str(self.folder / UNFINISHED),
                found=f"version {self.current().version}, complete",
                hint="outstation fleet add-master, drop-master or rotate begins a new one",
            )
        draft = _readable(body, str(self.folder / UNFINISHED))
        for key in self._holders(keys, self.current(), draft):
            body = add_signature(body, key.key)
        return self._settle(body)

    def root_names(self) -> dict[bytes, str]:
        """The names of the root keys, those replaced too."""
        return root_names(self.chain())

    # --- inside ----------------------------------------------------------------------------------------------------

    def _propose(self, change: Callable[[RootList], RootList], keys: Sequence[Path], now: float) -> Progress:
        self._need_finished()
        current = self.current()
        return self._sign(change(current), self._holders(keys, current), now)

    def _sign(self, changed: RootList, keys: Sequence[RootKey], now: float) -> Progress:
        current = self.current()
        draft = replace(changed, version=current.version + 1, issued=max(int(now), current.issued))
        try:
            body = sign_root_list(draft, [key.key for key in keys])
        except Refused as refusal:
            raise UsageInvalid(
                "nobody would take this root list",
                error_id="fleet.bad_root_list",
                found=str(refusal),
                allowed="a key for each master that no other master or root holder has",
            ) from None
        return self._settle(body)

    def _settle(self, body: bytes) -> Progress:
        """Put a root list where it belongs: behind the others when it is complete, aside when it is not."""
        root = _readable(body, str(self.folder / UNFINISHED))
        chain = self.chain()
        try:
            next_root_list(body, read_root_list(chain[-1]))
        except Refused as refusal:
            if refusal.reason != "too_few_signatures":
                raise UsageInvalid(
                    "this root list does not follow the one before",
                    error_id="fleet.bad_root_list",
                    where=str(self.folder / UNFINISHED),
                    found=str(refusal),
                    allowed="one that was begun in this folder",
                    hint=f"remove {self.folder / UNFINISHED} and begin it again",
                ) from None
            write_private(self.folder / UNFINISHED, body)
            return self._progress(body, root, complete=False)
        write_private(self.folder / ROOT_LISTS, codec.encode([*chain, body]))
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        return self._progress(body, root, complete=True)

    def _progress(self, body: bytes, root: RootList, *, complete: bool) -> Progress:
        names = self.root_names()
        for public in root.roots:
            names.setdefault(public, f"root-{len(names) + 1}")
        signed = signers(body)
        missing: list[str] = []
        if not complete:
            current = self.current()
            wanted = [("keys of the list before", current), ("keys of the new list", root)]
            if current.roots == root.roots:
                wanted = [("root keys", root)]
            for what, each in wanted:
                lacking = each.threshold - sum(1 for public in each.roots if kid(public) in signed)
                others = [names[public] for public in each.roots if kid(public) not in signed]
                if lacking > 0:
                    missing.append(f"{lacking} more of the {what}: {', '.join(others)}")
        return Progress(
            root=root,
            signed_by=tuple(name for public, name in names.items() if kid(public) in signed),
            missing=tuple(missing),
            file=self.folder / (ROOT_LISTS if complete else UNFINISHED),
        )

    def _holders(self, paths: Sequence[Path], *lists: RootList) -> list[RootKey]:
        """The keys to sign with: those given, else those in the folder. Raises ``UsageInvalid`` for a foreign one."""
        allowed = {public for root in lists for public in root.roots}
        if not paths:
            keys = [key for key in root_keys_in(self.folder) if key.key.public in allowed]
        else:
            keys = [read_root_key(path) for path in paths]
        names = self.root_names()
        for key in keys:
            if key.key.public not in allowed:
                raise UsageInvalid(
                    "this key is no root key of this fleet, or was replaced",
                    error_id="fleet.foreign_key",
                    where=str(key.path),
                    found=described(key),
                    allowed=", ".join(
                        sorted(f"{names.get(each, 'a new key')} ({fingerprint(each)})" for each in allowed)
                    ),
                    hint="outstation fleet … --key FILE, with the file of one of those",
                )
        if not keys:
            raise UsageInvalid(
                "no root key is here to sign with",
                error_id="fleet.no_key",
                where=str(self.folder),
                allowed=", ".join(sorted(f"{names.get(each, 'a new key')}.key" for each in allowed)),
                hint="mount the medium of one, and give it: --key /media/…/root-1.key",
            )
        return keys

    def _new_key(self, name: str) -> RootKey:
        """A new root key, or the one that was made for a root list that was given up."""
        path = self.folder / f"{name}.key"
        return read_root_key(path) if path.exists() else make_root_key(self.folder, name)

    def _need_finished(self) -> None:
        body = self.unfinished()
        if body is not None:
            draft = _readable(body, str(self.folder / UNFINISHED))
            raise UsageInvalid(
                "a root list waits for signatures here",
                error_id="fleet.unfinished",
                where=str(self.folder / UNFINISHED),
                found=f"version {draft.version}",
                allowed="one new root list at a time",
                hint=f"outstation fleet add-signature --key FILE, or remove {self.folder / UNFINISHED} to give it up",
            )


def root_names(chain: Sequence[bytes]) -> dict[bytes, str]:
    """The names of root keys: numbered in the order in which the lists brought them."""
    names: dict[bytes, str] = {}
    for body in chain:
        for public in read_root_list(body).roots:
            names.setdefault(public, f"root-{len(names) + 1}")
    return names


def checked_chain(body: bytes, where: str) -> list[bytes]:
    """The root lists in a file, each verified by the one before. Raises ``ConfigInvalid``."""
    chain = read_bodies(body, where)
    try:
        follow(chain, None)
    except Refused as refusal:
        raise ConfigInvalid(
            "these root lists prove nothing",
            where=where,
            found=str(refusal),
            allowed="the file root-lists that `outstation fleet` wrote",
            hint="take the file from the folder of the ceremony again",
        ) from None
    return chain


def _readable(body: bytes, where: str) -> RootList:
    try:
        return read_root_list(body)
    except Refused as refusal:
        raise ConfigInvalid(
            "this is no root list",
            where=where,
            found=str(refusal),
            allowed="a root list that `outstation fleet` began",
            hint=f"remove {where} and begin it again",
        ) from None
