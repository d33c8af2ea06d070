"""What a file or a line of a fleet says, in words: root lists, a master's description, a request, a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from device_agent.clock import iso
from device_agent.errors import UsageInvalid
from device_agent.trust.cose_sign import SIGN_TAG
from device_agent.trust.keys import fingerprint, kid
from device_agent.trust.root_list import RootList, read_root_list, signers
from device_agent.trust.site_certificate import read_site_certificate
from gateway.fleet import armor
from gateway.fleet.bundle import read_bundle
from gateway.fleet.ceremony import ROOT_LISTS, checked_chain, root_names
from gateway.fleet.description import read_description
from gateway.fleet.private_file import read_private
from gateway.fleet.root_keys import FIRST_LINE
from gateway.fleet.site_authority import read_request
from gateway.fleet.station_files import FILE_BYTES
from upstream.curve import fingerprint as curve_fingerprint
from upstream.curve import key_text

Facts = list[tuple[str, str]]


def facts_of(given: str) -> Facts:
    """The facts in a line, or in the file of that name. Raises ``UsageInvalid`` and ``ConfigInvalid``."""
    text = re.sub(r"\s", "", armor.typed(given)).lower()
    readers: dict[str, Callable[[str], Facts]] = {
        "os-master": _master_facts,
        "os-request": _request_facts,
        "os-bundle": _bundle_facts,
    }
    for kind, reader in readers.items():
        if text.startswith(f"{kind}:"):
            return reader(text)
    body = read_private(Path(given), FILE_BYTES) if Path(given).is_file() else None
    if body is None or body.startswith(FIRST_LINE.encode()):
        raise UsageInvalid(
            "there is nothing to show",
            error_id="fleet.not_shown",
            where=given[:200],
            found="a root key, which is not shown" if body is not None else "no such file, and no line of a fleet",
            allowed="root-lists, root-list.unfinished, or what `master init`, `gateway init`, `keys accept` made",
            hint="outstation fleet show fleet/root-lists",
        )
    if body.startswith(SIGN_TAG):
        before = read_private(Path(given).with_name(ROOT_LISTS), FILE_BYTES)
        chain = checked_chain(before, ROOT_LISTS) if before is not None else []
        return [("unfinished", "yes: too few have signed"), *root_facts([*chain, body])]
    return root_facts(checked_chain(body, given))


def root_facts(chain: Sequence[bytes]) -> Facts:
    """The newest of these root lists."""
    root = read_root_list(chain[-1])
    names = root_names(chain)
    signed = signers(chain[-1])
    by_kid = {kid(public): name for public, name in names.items()}
    signatures = [by_kid.get(each, each.hex()) for each in sorted(signed)]
    return [
        ("fleet", root.fingerprint.hex()),
        ("version", f"{root.version}, issued {iso(root.issued)}"),
        ("signed by", f"{', '.join(sorted(signatures))} ({root.threshold} of {len(root.roots)} needed)"),
        *((names[public], fingerprint(public)) for public in root.roots),
        *_masters(root),
        *(("release key", fingerprint(public)) for public in root.releases),
    ]


def _masters(root: RootList) -> Facts:
    if not root.masters:
        return [("masters", "none yet: outstation fleet add-master DESCRIPTION")]
    found: Facts = []
    for master in root.masters:
        where = ", ".join(master.addresses) or "never online"
        found.append((master.name, f"{fingerprint(master.sig)}  {where}  may {', '.join(master.roles)}"))
    return found


def _master_facts(text: str) -> Facts:
    master = read_description(text)
    return [
        ("master", master.name),
        ("fingerprint", fingerprint(master.sig)),
        ("link key", curve_fingerprint(key_text(master.curve))),
        ("addresses", ", ".join(master.addresses) or "none"),
    ]


def _request_facts(text: str) -> Facts:
    request = read_request(text)
    return [
        ("site", request.site),
        ("fingerprint", curve_fingerprint(key_text(request.curve))),
        ("identity", fingerprint(request.sig)),
        ("made", iso(request.issued)),
    ]


def _bundle_facts(text: str) -> Facts:
    bundle = read_bundle(text)
    certificate = read_site_certificate(bundle.certificate)
    origins = [f"{origin}: {', '.join(functions)}" for origin, functions in certificate.policy.org.items()]
    return [
        ("bundle for", certificate.site),
        ("identity", fingerprint(certificate.sig)),
        ("until", iso(certificate.expires)),
        ("grants", ", ".join(certificate.policy.fun)),
        *(("origins", words) for words in origins),
        *root_facts(bundle.root_lists),
    ]
