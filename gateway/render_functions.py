"""Salt's functions for templates that depend on their arguments alone: ``defaults``, ``hashutil`` and ``slsutil``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final

from gateway.devices.pillar_merge import Strategy, merge, update
from gateway.render_filters import FILTERS, base64_decode, octets
from gateway.render_shown import plain

DIGESTS: Final = ("md5", "sha256", "sha512")


def merged(
    below: Mapping[Any, Any],
    above: Mapping[Any, Any],
    strategy: Strategy = "smart",
    renderer: str = "yaml",  # noqa: ARG001 - Salt's argument; there is one renderer
    merge_lists: bool = False,
) -> dict[Any, Any]:
    return merge(plain(below), plain(above), strategy, lists=merge_lists)


def merged_all(
    each: Iterable[Mapping[Any, Any]], strategy: Strategy = "smart", renderer: str = "yaml", merge_lists: bool = False
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for one in each:
        found = merged(found, one, strategy, renderer, merge_lists)
    return found


def with_defaults(
    dest: Any, src: Any, merge_lists: bool = False, in_place: bool = True, convert_none: bool = True
) -> Any:
    """``defaults.merge``: ``src`` over ``dest``, which is changed unless ``in_place`` is false."""
    if dest is None and in_place:
        raise TypeError("Can't perform in-place merge into NoneType")
    below = {} if dest is None and convert_none else dest if in_place and isinstance(dest, dict) else plain(dest)
    return update(
        below if in_place else deepcopy(below), {} if src is None and convert_none else plain(src), lists=merge_lists
    )


def each_with_defaults(
    dest: Any, defaults: Any, merge_lists: bool = True, in_place: bool = True, convert_none: bool = True
) -> Any:
    """``defaults.update``: each mapping in ``dest`` over the defaults."""
    if dest is None and in_place:
        raise TypeError("Can't perform in-place update into NoneType")
    nodes = dest if in_place and isinstance(dest, dict) else deepcopy(plain(dest or {}))
    for name, node in nodes.items():
        below = deepcopy(plain(defaults or {}))
        nodes[name] = with_defaults(below, node, merge_lists=merge_lists, convert_none=convert_none)
    return nodes


def digest(text: Any, checksum: str = "md5") -> str:
    if checksum not in DIGESTS:
        raise ValueError(f"Hash func '{checksum}' is not supported.")
    return hashlib.new(checksum, octets(text), usedforsecurity=False).hexdigest()


def _digest(checksum: str) -> Callable[[Any], str]:
    return lambda text: digest(text, checksum)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "defaults.deepcopy": lambda source: deepcopy(plain(source)),
    "defaults.merge": with_defaults,
    "defaults.update": each_with_defaults,
    "hashutil.base64_b64decode": base64_decode,
    "hashutil.base64_b64encode": FILTERS["base64_encode"],
    "hashutil.base64_decodestring": base64_decode,
    "hashutil.base64_encodestring": lambda text: base64.encodebytes(octets(text)).decode(),
    "hashutil.digest": digest,
    "hashutil.hmac_compute": FILTERS["hmac_compute"],
    "hashutil.hmac_signature": FILTERS["hmac"],
    **{f"hashutil.{name}_digest": _digest(name) for name in DIGESTS},
    "slsutil.boolstr": lambda value, true="true", false="false": true if value else false,
    "slsutil.merge": merged,
    "slsutil.merge_all": merged_all,
    "slsutil.update": lambda below, above, merge_lists=False: update(
        deepcopy(plain(below)), plain(above), lists=merge_lists
    ),
}
