"""Is the address at which the broker shall listen one of this machine's?"""

from __future__ import annotations

import errno
import socket
from typing import Final

SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""What says nothing about an address: this process or this machine has run out of something."""


def not_own(host: str) -> str:
    """Why nothing can listen at a host on this machine now; empty when it can. A name is looked up first.

    Raises ``OSError`` when that cannot be found out for want of descriptors or memory.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.bind((found[0][4][0], 0, *found[0][4][2:]))
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno in SHORT:
            raise
        return getattr(error, "strerror", None) or str(error)
    return ""
