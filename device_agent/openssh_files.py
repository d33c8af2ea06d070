"""The files of OpenSSH on a host: whose they are, where they lie, and that nobody makes us write elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from device_agent import openssh_keys, system_text, text_files
from device_agent.accounts.database import Accounts
from device_agent.accounts.files import User
from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host
from device_agent.openssh_keys import AuthorizedKey, KnownHost

KNOWN_BY_ALL = "/etc/ssh/ssh_known_hosts"
KNOWN_BY_USER = ".ssh/known_hosts"
STANDARD_PORT = 22


async def authorized_path(host: Host, arguments: Mapping[str, Any]) -> str:
    """The file that lets others in as a user. Raises ``FunctionFailed``."""
    return path_of(await _owner(host, arguments["user"]), arguments["config"])


async def known_path(host: Host, arguments: Mapping[str, Any]) -> str:
    """The file of known hosts that is meant. Raises ``FunctionFailed``."""
    return (await known_file(host, arguments["user"], arguments["config"]))[0]


@one_change_at_a_time(known_path)
async def know(
    host: Host, user: str | None, config: str | None, goes: Callable[[KnownHost], bool], new: list[KnownHost]
) -> int:
    """Take the entries that ``goes`` names out of a known_hosts and add new ones; how many lines went."""
    path, owner = await known_file(host, user, config)
    lines = await text_files.lines_if_there(host, path)
    kept = [line for line in lines if not ((entry := openssh_keys.known_host(line)) and goes(entry))]
    if new or len(kept) != len(lines):
        await write(host, owner, path, [*kept, *(entry.line() for entry in new)])
    return len(lines) - len(kept)


async def known_file(host: Host, user: str | None, config: str | None) -> tuple[str, User | None]:
    """Where the known hosts are that are meant, and whose they are: nobody's for those of everybody."""
    if not user:
        path = config or KNOWN_BY_ALL
        if not path.startswith("/"):
            raise FunctionFailed(f"{path!r} must begin at the root of the device when no user is named")
        return path, None
    owner = await Accounts(host).some_user(user)
    return path_of(owner, config or KNOWN_BY_USER), owner


async def authorized_file(host: Host, user: str, config: str) -> tuple[User, list[str]]:
    """A user, and the lines of the file that lets others in as him. Raises ``FunctionFailed``."""
    owner = await _owner(host, user)
    return owner, await text_files.lines_if_there(host, path_of(owner, config))


async def _owner(host: Host, user: str) -> User:
    owner = await Accounts(host).user(user)
    if owner is None:
        raise FunctionFailed(f"there is no user {user!r} on this device", value="fail")
    return owner


async def write(host: Host, owner: User | None, path: str, lines: list[str]) -> None:
    """Write a file that is a user's own. A link that he made could have us write anything, so none is followed."""
    folder = path.rpartition("/")[0]
    for each in (folder, path):
        stat = await host.stat(each, follow=False)
        if stat is not None and stat.kind == "link" and stat.uid != 0:
            raise FunctionFailed(f"{each} is a link, and not the administrator's own: it is not followed")
    text = "".join(f"{line}\n" for line in lines)
    if owner is None:
        await text_files.write(host, path, text)
        return
    if await host.stat(folder) is None:
        if await host.stat(owner.home) is None:
            raise FunctionFailed(f"{owner.name} has no home: there is no {owner.home}", value="fail")
        await do(host, "mkdir", "-p", "-m", "700", folder)
        await do(host, "chown", f"{owner.uid}:{owner.gid}", folder)
    new = await host.stat(path) is None
    await text_files.write(host, path, text, mode=0o600 if new else None, owner=(owner.uid, owner.gid) if new else None)


def path_of(user: User, config: str) -> str:
    """A path from the home of a user, with ``%u`` and ``%h`` as sshd knows them."""
    path = config.replace("%%", "\0").replace("%u", user.name).replace("%h", user.home).replace("\0", "%")
    return path if path.startswith("/") else f"{user.home.rstrip('/')}/{path}"


def holds(line: str, key: str) -> bool:
    """This line is about this key."""
    found = openssh_keys.authorized(line)
    return found is not None and found.key == key


def one_line(wanted: AuthorizedKey) -> AuthorizedKey:
    """The same key, if its line lets in this key and no other one. Raises ``FunctionFailed``."""
    for text in (wanted.comment, *wanted.options):
        if not system_text.is_one_line(text):
            raise FunctionFailed(
                f"a key is one line, with its comment and its options: {text!r} has a character that ends a line",
                value="invalid",
            )
    read = openssh_keys.authorized(wanted.line())
    if read is None or (read.enc, read.key) != (wanted.enc, wanted.key):
        found = f"the key {read.key[:32]!r}" if read else "no key"
        raise FunctionFailed(
            f'sshd would read {found} in this line: an option with a blank needs double quotes, as in command="a b"',
            value="invalid",
        )
    return wanted


def shown_key(key: AuthorizedKey, kind: str | None) -> dict[str, Any] | None:
    """A key as it is returned; None when its text is no key."""
    printed = openssh_keys.fingerprint(key.key, hash_name(kind))
    if printed is None:
        return None
    return {"enc": key.enc, "comment": key.comment, "options": list(key.options), "fingerprint": printed}


def shown_hosts(entries: list[KnownHost], kind: str | None) -> list[dict[str, str]]:
    """Keys of hosts as they are returned."""
    return [
        {"hostname": entry.hostname, "key": entry.key, "enc": entry.enc, "fingerprint": printed}
        for entry in entries
        if (printed := openssh_keys.fingerprint(entry.key, hash_name(kind)))
    ]


def hash_name(kind: str | None) -> str:
    """The name of a hash for fingerprints. Raises ``FunctionFailed``."""
    name = (kind or "sha256").lower()
    if name not in {"md5", "sha1", "sha224", "sha256", "sha384", "sha512"} & hashlib.algorithms_guaranteed:
        raise FunctionFailed(f"the fingerprint hash type {kind!r} is not supported; sha256 and md5 are the usual ones")
    return name


def type_named(enc: str) -> str:
    """A type of key under the name it has in files. Raises ``FunctionFailed``."""
    found = openssh_keys.type_of(enc)
    if found is None:
        raise FunctionFailed(f"{enc!r} is no type of key; ssh-rsa, ecdsa and ed25519 are some")
    return found


def named(hostname: str | None) -> str:
    """The same name, if there is one. Raises ``FunctionFailed``."""
    if not hostname:
        raise problem("hostname argument required")
    return hostname


def called(hostname: str, port: int | None) -> str:
    """A host and its port as one name."""
    return hostname if port in {None, STANDARD_PORT} else f"[{hostname}]:{port}"


def problem(error: str) -> FunctionFailed:
    """A failure as Salt returns it."""
    return FunctionFailed(error, value={"status": "error", "error": error})
