"""gateway/salt/told_otherwise.py."""

from __future__ import annotations

from gateway.salt.told_otherwise import in_its_place, plainly
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

ODD = DeviceAnswer("odd", retcode=7, fun_args=["odd"], more={"x": "odd"})
OWN = ReturnsOfJob("20261121031500000001", "test.echo", {"a": ODD, "b": DeviceAnswer(1)}, {}, "m")
ANOTHERS = ReturnsOfJob(OWN.jid, OWN.fun, OWN.answers, {"arg": ["odd"], "user": "odd", "metadata": {"odd": 1}}, "m")


def test_what_is_said_in_its_place_has_nothing_of_it_but_who_and_that_it_failed() -> None:
    said = in_its_place(ANOTHERS)
    assert (said.jid, said.fun, said.master_id) == (OWN.jid, OWN.fun, "m")
    assert [(answer.retcode, answer.success) for answer in said.answers.values()] == [(7, False), (1, False)]
    assert "odd" not in repr(said)


def test_a_job_that_the_master_has_to_store_is_there_to_be_stored_plainly_too() -> None:
    for told in (plainly(ANOTHERS), in_its_place(ANOTHERS)):
        assert (told.load["tgt"], told.load["tgt_type"], told.load["arg"]) == (["a", "b"], "list", [])
    assert plainly(ANOTHERS).answers == OWN.answers
    assert not plainly(OWN).load
    assert not in_its_place(OWN).load
