"""A stock master with another RSA key than before, which its signing key vouches for: the devices' jobs go on."""

from __future__ import annotations

from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import salt_site

DEVICES = 4
SIGN_KEY = "master_sign.pub"


def started_anew(master: SaltMaster, *, signs: bool) -> None:
    """And nobody is known to it."""
    for names in master.keys().values():
        for name in names:
            master.key("--delete", name)
    master.restart(master_sign_pubkey=signs)


def test_jobs_of_devices_come_back_under_a_key_that_the_signing_key_vouches_for(master: SaltMaster) -> None:
    started_anew(master, signs=True)
    placed = {SIGN_KEY: (master.folder / "pki" / SIGN_KEY).read_bytes()}
    with salt_site(master, devices=DEVICES, placed=placed, verify_master_pubkey_sign=True) as site:
        site.answered(master)
        before = master.fingerprint()
        master.stop()
        master.forget_key_pair()
        master.start()
        assert master.fingerprint() != before
        master.until(lambda: master.salt("cam-00001", "test.ping").each, "the site hears the master again")
        site.answered(master)
        jid = master.ordered("cam-*", "test.echo", "hello")
        master.until(lambda: master.returned(jid) == dict.fromkeys(site.ids, "hello"), "every answer")
        site.balanced()


def test_a_key_that_nobody_vouches_for_is_not_obeyed(master: SaltMaster) -> None:
    """Until the operator of the gateway has set the old one aside."""
    started_anew(master, signs=False)
    with salt_site(master, devices=DEVICES) as site:
        site.answered(master)
        master.stop()
        master.forget_key_pair()
        master.start()

        def refused() -> bool:
            # What it publishes is how it is known: the session is good after all.
            assert master.salt("cam-*", "test.ping").each == []
            return bool(site.links()[master.address]["state"] == "refused")

        master.until(refused, "the new key is refused")
        assert "another key" in site.links()[master.address]["last_error"]
