"""Write a host and a port as one text."""

from __future__ import annotations


def host_port(host: str, port: int | str) -> str:
    """Return ``host:port``; an IPv6 address stands in brackets (RFC 3986, section 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
