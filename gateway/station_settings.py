"""The settings of a station from its file, with what its role implies, held against what no table can say."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from device_agent.errors import ConfigInvalid
from device_agent.settings import load
from gateway.brackets import address_fault, host_fault
from gateway.config import BrokerSettings, SitesSettings, StationSettings
from gateway.jobs.nodegroups import Nodegroups
from gateway.rooms import Role
from upstream.uplink import UplinkRules

HIGHEST_PORT = 65535


def settings_for(role: Role, path: Path) -> StationSettings:
    """The settings of a station, with what its role implies. Raises ``ConfigInvalid``."""
    settings = load(StationSettings, path)
    _check_brackets(settings, path)
    _check_addresses(settings, path)
    Nodegroups(settings.nodegroups).check(path)
    _check_upstream(role, settings, path)
    if role == "gateway":
        return settings if settings.broker is not None else replace(settings, broker=BrokerSettings())
    if settings.masters or settings.broker is not None:
        raise ConfigInvalid(
            "a master has sites, and neither masters nor a broker",
            where=str(path),
            found="masters" if settings.masters else "broker",
            allowed="name, sites, state_dir, socket, log_level, jobs",
            hint="run it as a gateway with a sites: section, if it stands between a master and other gateways",
        )
    return settings if settings.sites is not None else replace(settings, sites=SitesSettings())


def _check_upstream(role: Role, settings: StationSettings, path: Path) -> None:
    if not settings.upstream.salt:
        return
    if role == "master":
        raise ConfigInvalid(
            "a master has no masters above it",
            where=f"{path}: upstream",
            found="type: salt",
            allowed="sites below it",
            hint="run it as a gateway, which takes the place of a syndic for its devices (docs/salt.md)",
        )
    if settings.masters:
        raise ConfigInvalid(
            "the masters above are either ours or Salt's",
            where=f"{path}: masters",
            found=f"masters: {settings.masters[0].address}, and upstream: {{type: salt}}",
            allowed="one of the two",
            hint="remove masters:, or upstream:",
        )


def _check_brackets(settings: StationSettings, path: Path) -> None:
    """What no address can be is a wrong setting, and none that may come after the start."""
    given = [(f"masters[{place}].address", entry.address) for place, entry in enumerate(settings.masters)]
    given += [("sites.listen", settings.sites.listen)] if settings.sites is not None else []
    given += [("api.listen", settings.api.listen)] if settings.api is not None else []
    faults = [(key, address, address_fault(address)) for key, address in given]
    if settings.broker is not None and settings.broker.host is not None:
        faults.append(("broker.host", settings.broker.host, host_fault(settings.broker.host)))
    for key, found, allowed in faults:
        if allowed:
            raise ConfigInvalid("this is no address", where=f"{path}: {key}", found=found, allowed=allowed)


def _check_addresses(settings: StationSettings, path: Path) -> None:
    addresses = {f"masters[{place}].address": entry.address for place, entry in enumerate(settings.masters)}
    for key, address in addresses.items():
        first = next(name for name, other in addresses.items() if other == address)
        if first != key:
            raise ConfigInvalid(
                "this master is there twice",
                where=f"{path}: {key}",
                found=f"{address}, as in {first}",
                allowed="each address once",
                hint="remove one of the two; `outstation keys list` on the master shows its key",
            )
    if settings.sites is not None:
        addresses["sites.listen"] = settings.sites.listen
    for key, address in addresses.items():
        port = address.rsplit(":", 1)[1]
        if port != "*" and not (port.isdigit() and int(port) <= HIGHEST_PORT):
            raise ConfigInvalid(
                "there is no such port",
                where=f"{path}: {key}",
                found=address,
                allowed=f"1 to {HIGHEST_PORT}, or * to listen",
            )


def uplink_rules(settings: StationSettings) -> UplinkRules:
    """How a gateway with these settings uses its masters."""
    return UplinkRules(
        master_type=settings.master_type,
        master_alive_interval=settings.master_alive_interval,
        master_failback=settings.master_failback,
        master_failback_interval=settings.master_failback_interval,
        master_shuffle=settings.master_shuffle,
        random_reauth_delay=settings.random_reauth_delay,
        max_bytes_per_second=settings.uplink.max_bytes_per_second,
    )
