"""Keys of SSH: who may log in to the device, and which other hosts it knows."""

from __future__ import annotations

import re
from typing import Any

from device_agent import openssh_files, openssh_keys, system_text, text_files
from device_agent.accounts.database import Accounts
from device_agent.commands import ask, one_of, word
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host
from device_agent.openssh_keys import AuthorizedKey, KnownHost

AUTHORIZED = ".ssh/authorized_keys"
SCANS = 3
USER_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")


async def auth_keys(
    host: Host,
    user: str | list[str] | None = None,
    config: str = AUTHORIZED,
    fingerprint_hash_type: str | None = None,
) -> dict[str, Any]:
    """Return the keys that may log in as a user, by key; for several users, or all when none is named, by user.

    CLI Example:

        outstation run 'gw-*' ssh.auth_keys root
        outstation run 'gw-*' ssh.auth_keys user='["root", "tech"]'
    """
    wanted = [user] if isinstance(user, str) else user
    found: dict[str, Any] = {}
    for each in await Accounts(host).users():
        if wanted is None or each.name in wanted:
            lines = await text_files.lines_if_there(host, openssh_files.path_of(each, config))
            keys = [key for line in lines if (key := openssh_keys.authorized(line))]
            if keys or wanted is not None:
                found[each.name] = {
                    key.key: shown for key in keys if (shown := openssh_files.shown_key(key, fingerprint_hash_type))
                }
    return found.get(user, {}) if isinstance(user, str) else found


async def check_key(
    host: Host,
    user: str,
    key: str,
    enc: str,
    comment: str,
    options: list[str] | None,
    config: str = AUTHORIZED,
    cache_keys: list[str] | None = None,  # noqa: ARG001 - Salt's name, which does nothing there either
    fingerprint_hash_type: str | None = None,  # noqa: ARG001 - Salt's name; no fingerprint comes back
) -> str:
    """Return what ``ssh.set_auth_key`` would do with a key: ``add``, ``update`` or nothing, as it ``exists``.

    CLI Example:

        outstation run 'gw-*' ssh.check_key root AAAAC3… ssh-ed25519 'tech@office' '[]'
    """
    _, lines = await openssh_files.authorized_file(host, user, config)
    now = next((found for line in lines if (found := openssh_keys.authorized(line)) and found.key == key), None)
    if now is None:
        return "add"
    return (
        "exists"
        if now == AuthorizedKey(openssh_files.type_named(enc), key, comment, tuple(options or ()))
        else "update"
    )


async def check_key_file(
    host: Host,
    user: str,
    source: str,
    config: str = AUTHORIZED,
    saltenv: str = "base",  # noqa: ARG001 - Salt's name, of its file server
    fingerprint_hash_type: str | None = None,  # noqa: ARG001 - Salt's name; no fingerprint comes back
) -> dict[str, str]:
    """Return the same for each key of a file of the device, by key.

    CLI Example:

        outstation run 'gw-*' ssh.check_key_file root /tmp/keys
    """
    keys = [key for line in await text_files.lines(host, source) if (key := openssh_keys.authorized(line))]
    return {
        key.key: await check_key(host, user, key.key, key.enc, key.comment, list(key.options), config) for key in keys
    }


@one_change_at_a_time(openssh_files.authorized_path)
async def set_auth_key(
    host: Host,
    user: str,
    key: str,
    enc: str = "ssh-rsa",
    comment: str = "",
    options: list[str] | None = None,
    config: str = AUTHORIZED,
    cache_keys: list[str] | None = None,  # noqa: ARG001 - Salt's name, which does nothing there either
    fingerprint_hash_type: str | None = None,  # noqa: ARG001 - Salt's name; no fingerprint comes back
) -> str:
    """Let a key log in as a user, and return ``new``, ``replace`` or ``no change``.

    ``key`` is the middle part of a public key. A missing folder or file is made, and is the user's own.

    CLI Example:

        outstation run 'gw-*' ssh.set_auth_key root AAAAC3… enc=ed25519 comment='tech@office'
    """
    if len(key.split()) != 1:
        raise FunctionFailed("a key is one word, the middle part of a public key", value="invalid")
    if openssh_keys.fingerprint(key) is None:
        raise FunctionFailed("this is no public key: it is not what base64 writes", value="Invalid public key")
    wanted = openssh_files.one_line(AuthorizedKey(openssh_files.type_named(enc), key, comment, tuple(options or ())))
    owner, lines = await openssh_files.authorized_file(host, user, config)
    places = [place for place, line in enumerate(lines) if openssh_files.holds(line, key)]
    if places and openssh_keys.authorized(lines[places[0]]) == wanted:
        return "no change"
    kept = [line for place, line in enumerate(lines) if place not in places[1:]]
    if places:
        kept[places[0]] = wanted.line()
    lines = kept if places else [*kept, wanted.line()]
    await openssh_files.write(host, owner, openssh_files.path_of(owner, config), lines)
    return "replace" if places else "new"


async def set_auth_key_from_file(
    host: Host,
    user: str,
    source: str,
    config: str = AUTHORIZED,
    saltenv: str = "base",  # noqa: ARG001 - Salt's name, of its file server
    fingerprint_hash_type: str | None = None,  # noqa: ARG001 - Salt's name; no fingerprint comes back
) -> str:
    """Let every key of a file of the device log in as a user; return ``new``, ``replace`` or ``no change``.

    CLI Example:

        outstation run 'gw-*' ssh.set_auth_key_from_file root /tmp/keys
    """
    done = {
        await set_auth_key(host, user, key.key, key.enc, key.comment, list(key.options), config)
        for line in await text_files.lines(host, source)
        if (key := openssh_keys.authorized(line))
    }
    if not done:
        raise FunctionFailed(f"there is no key in {source}", value="fail")
    return next(word for word in ("replace", "new", "no change") if word in done)


@one_change_at_a_time(openssh_files.authorized_path)
async def rm_auth_key(
    host: Host,
    user: str,
    key: str,
    config: str = AUTHORIZED,
    fingerprint_hash_type: str | None = None,  # noqa: ARG001 - Salt's name; no fingerprint comes back
) -> str:
    """Do not let a key log in as a user any more; return ``Key removed`` or ``Key not present``.

    CLI Example:

        outstation run 'gw-*' ssh.rm_auth_key root AAAAC3…
    """
    owner, lines = await openssh_files.authorized_file(host, user, config)
    kept = [line for line in lines if not openssh_files.holds(line, key)]
    if kept == lines:
        return "Key not present"
    await openssh_files.write(host, owner, openssh_files.path_of(owner, config), kept)
    return "Key removed"


async def host_keys(host: Host, keydir: str | None = None, private: bool = True, certs: bool = True) -> dict[str, str]:
    """Return the device's own keys by type. The private ones go over the wire too unless ``private`` is ``False``.

    CLI Example:

        outstation run 'gw-*' ssh.host_keys private=False
    """
    folder = keydir or "/etc/ssh"
    keys = {}
    for name in await host.list(folder):
        found = re.fullmatch(r"ssh_host_(.+?)_key((-cert)?\.pub)?", name)
        if found and (private or found[2]) and (certs or not found[3]):
            keys[f"{found[1]}{found[2] or ''}"] = (await text_files.read(host, f"{folder}/{name}")).strip()
    return keys


async def user_keys(
    host: Host,
    user: str | list[str] | None = None,
    pubfile: str | bool | None = None,
    prvfile: str | bool | None = None,
) -> dict[str, dict[str, str]]:
    """Return the keys of users, or of all, by user and file; ``False`` for one of the two kinds leaves it out.

    CLI Example:

        outstation run 'gw-*' ssh.user_keys tech prvfile=False
    """
    wanted = [user] if isinstance(user, str) else user
    files: list[str] = []
    for given, standard in ((pubfile, [f"{name}.pub" for name in USER_KEYS]), (prvfile, list(USER_KEYS))):
        if given is not False:
            files += [given] if isinstance(given, str) and given else standard
    found: dict[str, dict[str, str]] = {}
    for each in await Accounts(host).users():
        if wanted is None or each.name in wanted:
            for file in files:
                path = file if file.startswith("/") else f"{each.home}/.ssh/{file}"
                if text := (await text_files.read_if_there(host, path)).strip():
                    found.setdefault(each.name, {})[path.rpartition("/")[2]] = text
    return found


async def get_known_host_entries(
    host: Host,
    user: str | None,
    hostname: str,
    config: str | None = None,
    port: int | None = None,
    fingerprint_hash_type: str | None = None,
) -> list[dict[str, str]] | None:
    """Return the keys that a user, or everybody for no user, knows of a host; nothing when it is not known.

    CLI Example:

        outstation run 'gw-*' ssh.get_known_host_entries root git.example.com
    """
    lines = await text_files.lines_if_there(host, (await openssh_files.known_file(host, user, config))[0])
    name = openssh_files.called(hostname, port)
    entries = [entry for line in lines if (entry := openssh_keys.known_host(line)) and entry.names(name)]
    return openssh_files.shown_hosts(entries, fingerprint_hash_type) or None


async def recv_known_host_entries(
    host: Host,
    hostname: str,
    enc: str | None = None,
    port: int | None = None,
    hash_known_hosts: bool = True,
    timeout: int = 5,
    fingerprint_hash_type: str | None = None,
) -> list[dict[str, str]] | None:
    """Ask a host for its keys, as the device sees it, and return them; nothing when it does not answer.

    CLI Example:

        outstation run 'gw-*' ssh.recv_known_host_entries git.example.com enc=ed25519
    """
    await one_of(host, "ssh-keyscan")
    words = ["ssh-keyscan", *(["-p", str(port)] if port else []), *(["-t", enc] if enc else [])]
    words += [*(["-H"] if hash_known_hosts else []), "-T", str(timeout), "--", word(hostname, "the host")]
    for _ in range(SCANS):
        lines = system_text.lines((await ask(host, *words)).out)
        entries = [entry for line in lines if (entry := openssh_keys.known_host(line))]
        if entries:
            return openssh_files.shown_hosts(entries, fingerprint_hash_type)
    return None


async def check_known_host(
    host: Host,
    user: str | None = None,
    hostname: str | None = None,
    key: str | None = None,
    fingerprint: str | None = None,
    config: str | None = None,
    port: int | None = None,
    fingerprint_hash_type: str | None = None,
) -> str:
    """Return whether a host is known with this key or fingerprint: ``exists``, ``add`` or ``update``.

    CLI Example:

        outstation run 'gw-*' ssh.check_known_host root git.example.com fingerprint=a1:b2:…
    """
    known = (
        await get_known_host_entries(host, user, openssh_files.named(hostname), config, port, fingerprint_hash_type)
        or []
    )
    if not known:
        return "add"
    wanted = {"key": key} if key else {"fingerprint": fingerprint} if fingerprint else {}
    same = any(all(entry[field] == value for field, value in wanted.items()) for entry in known)
    return "exists" if same else "update"


async def set_known_host(
    host: Host,
    user: str | None = None,
    hostname: str | None = None,
    fingerprint: str | None = None,
    key: str | None = None,
    port: int | None = None,
    enc: str | None = None,
    config: str | None = None,
    hash_known_hosts: bool = True,
    timeout: int = 5,
    fingerprint_hash_type: str | None = None,
) -> dict[str, Any]:
    """Have a host known to a user, or to everybody, and return ``{"status": "updated" or "exists", …}``.

    Without ``key`` the host is asked for it; then only a ``fingerprint`` makes sure that it is the right one.

    CLI Example:

        outstation run 'gw-*' ssh.set_known_host root git.example.com fingerprint=a1:b2:… enc=ed25519
    """
    name = openssh_files.called(openssh_files.named(hostname), port)
    known = (
        await get_known_host_entries(host, user, openssh_files.named(hostname), config, port, fingerprint_hash_type)
        or []
    )
    same_type = [
        entry for entry in known if enc is None or entry["enc"] == enc or entry["enc"] == openssh_files.type_named(enc)
    ]
    wanted_is_there = (key and any(entry["key"] == key for entry in same_type)) or (
        not key and fingerprint and any(entry["fingerprint"] == fingerprint for entry in known)
    )
    if wanted_is_there:
        return {"status": "exists", "keys": [entry["key"] for entry in same_type]}
    if key:
        new = [{"hostname": name, "enc": openssh_files.type_named(enc or "ssh-rsa"), "key": key}]
    else:
        asked = recv_known_host_entries(
            host, openssh_files.named(hostname), enc, port, False, timeout, fingerprint_hash_type
        )
        new = await asked or []
        if not new:
            raise openssh_files.problem("Unable to receive remote host keys")
        if fingerprint:
            # Only what was compared: whoever stands between can show the right key beside one of his own.
            new = [entry for entry in new if entry["fingerprint"] == fingerprint]
            if not new:
                raise openssh_files.problem(
                    "Remote host public keys found but none of their fingerprints match the one you have provided"
                )
        if not fingerprint and {entry["key"] for entry in new} == {entry["key"] for entry in same_type}:
            return {"status": "exists", "keys": [entry["key"] for entry in same_type]}
    types = {entry["enc"] for entry in new}
    entries = [
        KnownHost(openssh_keys.hidden(name) if hash_known_hosts else name, entry["enc"], entry["key"]) for entry in new
    ]
    await openssh_files.know(host, user, config, lambda entry: entry.names(name) and entry.enc in types, entries)
    return {"status": "updated", "old": known or None, "new": new}


async def rm_known_host(
    host: Host,
    user: str | None = None,
    hostname: str | None = None,
    config: str | None = None,
    port: int | None = None,
) -> dict[str, str]:
    """Have a host not known any more, and return ``{"status": "removed", …}``.

    CLI Example:

        outstation run 'gw-*' ssh.rm_known_host root git.example.com
    """
    name = openssh_files.called(openssh_files.named(hostname), port)
    path, _ = await openssh_files.known_file(host, user, config)
    if await host.stat(path) is None:
        raise openssh_files.problem(f"Known hosts file {path} does not exist")
    gone = await openssh_files.know(host, user, config, lambda entry: entry.names(name), [])
    return {"status": "removed", "comment": f"{gone} lines of {name} removed from {path}"}


@one_change_at_a_time(openssh_files.known_path)
async def hash_known_hosts(host: Host, user: str | None = None, config: str | None = None) -> dict[str, str]:
    """Hide the names of all known hosts, so that they can only be recognized, and return ``{"status": "updated", …}``.

    CLI Example:

        outstation run 'gw-*' ssh.hash_known_hosts root
    """
    path, owner = await openssh_files.known_file(host, user, config)
    lines = []
    for line in await text_files.lines(host, path):
        entry = openssh_keys.known_host(line)
        if entry is None or entry.hostname.startswith("|") or any(letter in entry.hostname for letter in "*?!"):
            lines.append(line)
            continue
        names = entry.hostname.split(",")
        lines += [KnownHost(openssh_keys.hidden(name), entry.enc, entry.key, entry.marker).line() for name in names]
    await openssh_files.write(host, owner, path, lines)
    return {"status": "updated", "comment": f"the names in {path} are hidden"}
