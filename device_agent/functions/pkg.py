"""Packages of the device: of apt, opkg or apk, whichever it has."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from device_agent.commands import word
from device_agent.ended import Ended, FunctionFailed
from device_agent.host import Host
from device_agent.packages.found import packages_of
from device_agent.packages.port import How, Packages, Wanted

Names = list[str | dict[str, str | None]] | None
Changes = dict[str, dict[str, str]]


async def list_pkgs(
    host: Host, versions_as_list: bool = False, removed: bool = False, purge_desired: bool = False
) -> dict[str, Any]:
    """Return the installed packages with their versions; with ``removed`` those of which only the settings are left.

    CLI Example:

        outstation run 'gw-*' pkg.list_pkgs
        outstation run 'gw-*' pkg.list_pkgs versions_as_list=True
    """
    manager = await packages_of(host)
    if purge_desired:
        return {}  # Nothing marks packages so any more; apt has not for many years.
    found = await (manager.removed() if removed else manager.installed())
    return {name: [version] for name, version in found.items()} if versions_as_list else dict(found)


async def version(host: Host, *names: str) -> str | dict[str, str]:
    """Return the version of an installed package, nothing when it is not; for several or a glob, a dictionary.

    CLI Example:

        outstation run 'gw-*' pkg.version openssh-server
        outstation run 'gw-*' pkg.version 'openssh-*' curl
    """
    there = await (await packages_of(host)).installed()
    found: dict[str, str] = {}
    for name in names:
        if _is_glob(name):
            found |= {each: number for each, number in there.items() if fnmatchcase(each, name)}
        else:
            found[name] = there.get(name, "")
    return found[names[0]] if len(names) == 1 and not _is_glob(names[0]) else found


async def latest_version(host: Host, *names: str, refresh: bool = True) -> str | dict[str, str]:
    """Return the version that would be installed, nothing when it is there already; for several, a dictionary.

    CLI Example:

        outstation run 'gw-*' pkg.latest_version openssh-server
        outstation run 'gw-*' pkg.latest_version openssh-server curl refresh=False
    """
    if not names:
        return ""
    manager = await packages_of(host)
    if refresh:
        await manager.refresh()
    found = await manager.candidates([_name(name) for name in names])
    return found.get(names[0], "") if len(names) == 1 else {name: found.get(name, "") for name in names}


async def available_version(host: Host, *names: str, refresh: bool = True) -> str | dict[str, str]:
    """Return the same as ``pkg.latest_version``.

    CLI Example:

        outstation run 'gw-*' pkg.available_version openssh-server
    """
    return await latest_version(host, *names, refresh=refresh)


async def upgrade_available(host: Host, name: str, refresh: bool = True) -> bool:
    """Return whether there is a newer version of a package.

    CLI Example:

        outstation run 'gw-*' pkg.upgrade_available openssh-server
    """
    return await latest_version(host, name, refresh=refresh) != ""


async def list_upgrades(host: Host, refresh: bool = True, dist_upgrade: bool = True) -> dict[str, str]:
    """Return the packages that an upgrade would change, with their new versions.

    CLI Example:

        outstation run 'gw-*' pkg.list_upgrades
    """
    manager = await packages_of(host)
    if refresh:
        await manager.refresh()
    return await manager.upgrades(dist=dist_upgrade)


async def refresh_db(host: Host, cache_valid_time: int = 0, failhard: bool = False) -> Any:
    """Fetch the lists of packages. Return by source ``True`` for news, ``None`` for none, ``False`` for a failure.

    With ``failhard`` one source that fails makes it all fail, as do all of them. ``cache_valid_time`` is Salt's and
    changes nothing: it is always done.

    CLI Example:

        outstation run 'gw-*' pkg.refresh_db
    """
    del cache_valid_time
    sources = await (await packages_of(host)).refresh()
    failed = [source for source, fetched in sources.items() if fetched is False]
    if failed and (failhard or len(failed) == len(sources)):
        return Ended(sources, 1, "failed", f"not fetched: {', '.join(failed)}")
    return sources


async def install(
    host: Host,
    name: str | None = None,
    refresh: bool = False,
    fromrepo: str | None = None,
    skip_verify: bool = False,
    debconf: str | None = None,
    pkgs: Names = None,
    sources: list[dict[str, str]] | None = None,
    reinstall: bool = False,
    downloadonly: bool = False,
    ignore_epoch: bool = False,  # noqa: ARG001 - Salt's name; versions are given to the package manager as they are
    normalize: bool = True,  # noqa: ARG001 - Salt's name; names are given to the package manager as they are
    *,
    version: str | float | None = None,
    only_upgrade: bool = False,
    install_recommends: bool = True,
) -> Changes:
    """Install packages and return what changed, as ``{name: {"old": …, "new": …}}``.

    ``name`` may be several, parted by commas. ``pkgs`` is a list of names or of ``{name: version}``; ``sources`` is one
    of ``{name: path}`` for package files that lie on the device. Settings that were changed by hand stay as they are.

    CLI Example:

        outstation run 'gw-*' pkg.install tcpdump refresh=True
        outstation run 'gw-*' pkg.install pkgs='["tcpdump", {"curl": "7.88.1-10"}]'
    """
    if debconf:
        raise FunctionFailed("answers for debconf are not taken; debconf-set-selections through cmd.run gives them")
    manager = await packages_of(host)
    if refresh:
        await manager.refresh()
    wanted = _wanted(name, pkgs, sources, "" if version is None else str(version))
    how = How(
        fromrepo=fromrepo or "",
        skip_verify=skip_verify,
        reinstall=reinstall,
        downloadonly=downloadonly,
        only_upgrade=only_upgrade,
        install_recommends=install_recommends,
    )
    before = await manager.installed()
    said = await manager.install(wanted, how)
    changes = _changes(before, await manager.installed())
    if reinstall and said.ok:
        there = await manager.installed()
        changes |= {
            each.name: {"old": there[each.name], "new": there[each.name]}
            for each in wanted
            if each.name in there and each.name not in changes
        }
    said.must(failing=changes)
    return changes


async def remove(host: Host, name: str | None = None, pkgs: Names = None) -> Changes:
    """Remove packages, but not their settings, and return what changed. One that is half installed goes as well.

    CLI Example:

        outstation run 'gw-*' pkg.remove tcpdump
        outstation run 'gw-*' pkg.remove pkgs='["tcpdump", "curl"]'
    """
    manager = await packages_of(host)
    before = await _present(manager)
    there = _chosen(_wanted(name, pkgs, None, ""), before)
    if not there:
        return {}
    said = await manager.remove(there, purge=False)
    changes = _changes(before, await _present(manager))
    said.must(failing=changes)
    return changes


async def purge(host: Host, name: str | None = None, pkgs: Names = None) -> dict[str, Changes]:
    """Remove packages with their settings. Return what changed of the installed, and of those with only settings left.

    CLI Example:

        outstation run 'gw-*' pkg.purge tcpdump
    """
    manager = await packages_of(host)
    before, remains = await _present(manager), await manager.removed()
    there = _chosen(_wanted(name, pkgs, None, ""), before | remains)
    if not there:
        return {}
    said = await manager.remove(there, purge=True)
    installed, removed = await _present(manager), await manager.removed()
    changes = {"removed": _changes(remains, removed), "installed": _changes(before, installed)}
    said.must(failing=changes)
    return changes


async def upgrade(
    host: Host,
    refresh: bool = True,
    dist_upgrade: bool = False,
    *,
    skip_verify: bool = False,
    download_only: bool = False,
) -> Changes:
    """Upgrade all packages and return what changed. ``dist_upgrade`` may also install and remove some.

    CLI Example:

        outstation run 'gw-*' pkg.upgrade
    """
    manager = await packages_of(host)
    if refresh:
        await manager.refresh()
    before = await manager.installed()
    how = How(skip_verify=skip_verify, downloadonly=download_only, dist_upgrade=dist_upgrade)
    said = await manager.upgrade(how)
    changes = _changes(before, await manager.installed())
    said.must(failing=changes)
    return changes


async def info_installed(host: Host, *names: str, failhard: bool = True) -> dict[str, dict[str, Any]]:
    """Return what is known of installed packages. One that is not installed is a failure unless told by ``failhard``.

    CLI Example:

        outstation run 'gw-*' pkg.info_installed openssh-server
    """
    manager = await packages_of(host)
    found = await manager.info([_name(name) for name in names or tuple(await manager.installed())])
    missing = [name for name in names if name not in found]
    if missing and failhard:
        raise FunctionFailed(f"not installed: {', '.join(missing)}")
    return found


async def list_holds(host: Host) -> list[str]:
    """Return the packages that no upgrade changes.

    CLI Example:

        outstation run 'gw-*' pkg.list_holds
    """
    return await (await packages_of(host)).held()


async def hold(host: Host, name: str | None = None, pkgs: Names = None) -> dict[str, Any]:
    """Keep packages as they are when others are upgraded, and return by package what was done.

    CLI Example:

        outstation run 'gw-*' pkg.hold openssh-server
    """
    return await _hold(host, name, pkgs, held=True)


async def unhold(host: Host, name: str | None = None, pkgs: Names = None) -> dict[str, Any]:
    """Let packages be upgraded again, and return by package what was done.

    CLI Example:

        outstation run 'gw-*' pkg.unhold openssh-server
    """
    return await _hold(host, name, pkgs, held=False)


async def _hold(host: Host, name: str | None, pkgs: Names, *, held: bool) -> dict[str, Any]:
    manager = await packages_of(host)
    now = await manager.held()
    report: dict[str, Any] = {}
    for each in _wanted(name, pkgs, None, ""):
        _name(each.name)
        entry: dict[str, Any] = {"name": each.name, "changes": {}, "result": True, "comment": ""}
        if (each.name in now) == held:
            entry["comment"] = f"Package {each.name} is already set {'' if held else 'not '}to be held."
        else:
            said = await manager.hold([each.name], held=held)
            states = ("install", "hold") if held else ("hold", "install")
            entry["changes"] = dict(zip(("old", "new"), states, strict=True)) if said.ok else {}
            entry["comment"] = f"Package {each.name} is {'now' if held else 'no longer'} being held."
            if not said.ok:
                entry |= {"result": False, "comment": said.why}
        report[each.name] = entry
    if failed := [entry["comment"] for entry in report.values() if not entry["result"]]:
        raise FunctionFailed("; ".join(failed), value=report)
    return report


async def _present(manager: Packages) -> dict[str, str]:
    return await manager.broken() | await manager.installed()


def _wanted(name: str | None, pkgs: Names, sources: list[dict[str, str]] | None, version: str) -> list[Wanted]:
    """What is asked for in any of the ways of asking. Raises ``FunctionFailed`` when it is nothing."""
    wanted: list[Wanted] = []
    for each in pkgs or []:
        pairs = each.items() if isinstance(each, dict) else [(each, None)]
        wanted += [Wanted(word(inner, "the package"), str(number or "")) for inner, number in pairs]
    for source in sources or []:
        wanted += [Wanted(inner, file=_path(path)) for inner, path in source.items()]
    if not wanted:
        names = [each.strip() for each in (name or "").split(",") if each.strip()]
        wanted = [Wanted(word(each, "the package"), version if len(names) == 1 else "") for each in names]
    if not wanted:
        raise FunctionFailed("no package is named: give a name, pkgs or sources")
    return wanted


def _name(name: str) -> str:
    """The same name. Raises ``FunctionFailed`` for the path or the address of a package file."""
    if "/" in name:
        raise FunctionFailed(f"{name!r} is no name of a package; pkg.install with sources takes package files")
    return word(name, "the package")


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise FunctionFailed(f"{path!r} is no path from the root of the device; a file is brought there first")
    return path


def _chosen(wanted: list[Wanted], there: dict[str, str]) -> list[str]:
    return [name for name in there if any(name == each.name or fnmatchcase(name, each.name) for each in wanted)]


def _is_glob(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _changes(before: dict[str, str], after: dict[str, str]) -> Changes:
    names = sorted(before.keys() | after.keys())
    pairs = {name: {"old": before.get(name, ""), "new": after.get(name, "")} for name in names}
    return {name: pair for name, pair in pairs.items() if pair["old"] != pair["new"]}
