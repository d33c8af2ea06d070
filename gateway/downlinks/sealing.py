"""What the MQTT downlink says, as bytes that devices can judge: jobs, cancels, confirmations, and whom to believe.

A job comes sealed and is only chosen here. What this station says itself it signs once for everybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from device_agent.protocol.links import Parcel
from device_agent.trust import notices
from device_agent.trust.deliveries import cancel_delivery, job_delivery
from device_agent.trust.revocations import read_revocations
from gateway.devices.authority import Authority
from gateway.devices.prekeys import Prekeys

CANCELS_KEPT = 1000


class Sealing:
    """Payloads for devices of one site."""

    def __init__(self, *, site: str, authority: Authority, prekeys: Prekeys) -> None:
        self._site = site
        self._authority = authority
        self._prekeys = prekeys
        self._cancels: OrderedDict[tuple[bytes, str], bytes] = OrderedDict()

    def choose(self, parcel: Parcel) -> tuple[bytes | None, dict[str, bytes]]:
        """Of a job, what is sealed for all devices of this site, and what is for single ones by their name."""
        return sealed_for(parcel, self._site)

    def job(self, body: bytes, remaining: float, bits: bytes | None) -> bytes:
        """A job on its way."""
        return job_delivery(body, remaining, bits)

    def cancel(self, jid: str, bits: bytes | None) -> bytes:
        """A cancel on its way; it is signed once for each job."""
        key = self._authority.signing
        body = self._cancels.get((key.kid, jid))
        if body is None:
            body = notices.sign_cancel(key, site=self._site, jid=jid, issued=int(self._authority.now()))
            self._cancels[key.kid, jid] = body
            if len(self._cancels) > CANCELS_KEPT:
                self._cancels.popitem(last=False)
        return cancel_delivery(body, bits)

    def ack(self, jids: Sequence[str], bits: bytes) -> bytes:
        """Returns that are on disk, for the devices whose bit is set."""
        issued = int(self._authority.now())
        return notices.sign_ack(self._authority.signing, site=self._site, jids=jids, bitmap=bits, issued=issued)

    def bundle(self) -> bytes | None:
        """Whom to believe at this site; None while it belongs to no fleet. Raises ``Refused`` when it is too large."""
        certificate, anchor = self._authority.certificate, self._authority.anchor
        if certificate is None:
            return None
        # Of other sites, those below a relay, devices here know nothing; of many root lists the newest lead on.
        concerning = [body for body in anchor.revocation_lists() if read_revocations(body).site in {None, self._site}]
        return notices.bundle(
            anchor.root_lists[-notices.LISTED :],
            [certificate.body],
            self._prekeys.body,
            concerning[: notices.LISTED],
        )


def sealed_for(parcel: Parcel, site: str) -> tuple[bytes | None, dict[str, bytes]]:
    """Of a job, what is sealed for all devices of a site, and what is for single ones by their name."""
    group: bytes | None = None
    single: dict[str, bytes] = {}
    for sealed in parcel.sealed:
        if sealed.site != site:
            continue
        if sealed.device:
            single[sealed.device] = sealed.body
        else:
            group = sealed.body
    return group, single
