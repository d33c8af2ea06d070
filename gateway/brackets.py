"""Brackets around an IPv6 address: before a port they are needed, and alone they are none of the address. Pure."""

from __future__ import annotations


def host_fault(host: str) -> str:
    """How to write a host that stands in brackets, as no system call takes it; empty for any other."""
    return f"an address without brackets: {host.strip('[]')}" if host.startswith("[") else ""


def address_fault(address: str) -> str:
    """How to write an IPv6 address whose last part would be taken for its port; empty for any other address."""
    scheme, _, rest = address.rpartition("//")
    host, _, port = rest.rpartition(":")
    bare = host.strip("[]")
    if ":" not in bare or host == f"[{bare}]":
        return ""
    return f"an IPv6 address in brackets before its port: {scheme}{'//' if scheme else ''}[{bare}]:{port}"
