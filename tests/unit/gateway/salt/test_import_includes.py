"""Settings that other files complete: included ones are joined as in Salt, and Salt's default folders come along."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.salt.import_box import Asked, Looked, look
from gateway.salt.import_findings import Finding
from gateway.salt.import_read import read_box
from tests.peers.salt_box import SaltBox


@pytest.fixture
def box(tmp_path: Path) -> SaltBox:
    made = SaltBox(tmp_path)
    made.write("etc/salt/master", "id: site-a\n")
    return made


def verdicts(looked: Looked, what: str) -> dict[str, str]:
    return {each.where.rpartition("/")[2]: each.verdict for each in looked.findings if each.what == what}


def verdict(looked: Looked, what: str) -> Finding:
    (finding,) = [each for each in looked.findings if each.what == what]
    return finding


def test_files_of_one_folder_are_joined_and_the_main_file_gives_way(box: SaltBox) -> None:
    box.write("etc/salt/master", "id: site-a\nreactor: [{'a/*': /a.sls}]\nnodegroups: {main: 'x'}\nloop_interval: 5\n")
    box.write("etc/salt/master.d/1.conf", "reactor: [{'b/*': /b.sls}]\nnodegroups: {one: 'cam-1', both: 'cam-1'}\n")
    box.write("etc/salt/master.d/2.conf", "reactor: [{'c/*': /c.sls}]\nnodegroups: {two: 'cam-2', both: 'cam-2'}\n")
    looked = look(Asked(box.salt))
    assert looked.settings["reactor"] == [{"b/*": "/b.sls"}, {"c/*": "/c.sls"}]
    assert looked.settings["nodegroups"] == {"one": "cam-1", "two": "cam-2", "both": "cam-2"}
    assert looked.settings["loop_interval"] == 5
    assert verdicts(looked, "reactor") == {"master:2": "no meaning", "1.conf:1": "translated", "2.conf:1": "carried"}
    assert verdicts(looked, "nodegroups.both") == {"1.conf:2": "no meaning", "2.conf:2": "carried"}
    assert verdicts(looked, "nodegroups.one") == {"1.conf:2": "carried"}


def test_an_include_is_relative_to_its_own_file_and_counts_before_it(box: SaltBox) -> None:
    box.write("etc/salt/master.d/1.conf", "include: more/*.conf\nloop_interval: 1\n")
    box.write("etc/salt/master.d/more/a.conf", "loop_interval: 2\nkeep_jobs: 48\n")
    box.write("etc/salt/master.d/2.conf", "keep_jobs: 24\n")
    box.write("etc/salt/more/b.conf", "loop_interval: 9\n")
    box.write("etc/salt/master.d/.hidden.conf", "loop_interval: 7\n")
    looked = look(Asked(box.salt))
    assert (looked.settings["loop_interval"], looked.settings["jobs"]) == (2, {"keep_hours": 24})
    assert verdict(looked, "include").verdict == "translated"
    box.write("etc/salt/master.d/1.conf", "include: [gone/*.conf]\nloop_interval: 1\n")
    looked = look(Asked(box.salt))
    assert verdict(looked, "include").verdict == "not carried"
    assert "gone/*.conf" in verdict(looked, "include").words


def test_another_default_include_takes_the_place_of_the_folder(box: SaltBox) -> None:
    box.write("etc/salt/master", "id: site-a\ndefault_include: site.d/*.conf\n")
    box.write("etc/salt/master.d/1.conf", "loop_interval: 1\n")
    box.write("etc/salt/site.d/1.conf", "loop_interval: 2\n")
    looked = look(Asked(box.salt))
    assert looked.settings["loop_interval"] == 2
    assert verdict(looked, "default_include").verdict == "translated"


def test_the_folders_that_salt_serves_by_default_come_along(box: SaltBox) -> None:
    box.write("srv/salt/a.txt", "a\n")
    box.write("srv/pillar/top.sls", "base: {cam-1: [cam]}\n")
    box.write("srv/pillar/cam.sls", "proxy: {proxytype: ssh, host: 192.0.2.1, password: x}\n")
    looked = look(Asked(box.salt, srv=box.root / "srv"))
    assert looked.settings["file_roots"] == {"base": [f"{box.root}/srv/salt"]}
    assert looked.settings["pillar_roots"] == {"base": [f"{box.root}/srv/pillar"]}
    assert verdict(looked, "file_roots").verdict == "translated"
    assert [row["name"] for row in looked.devices.ssh] == ["cam-1"]
    box.write("etc/salt/master", f"id: site-a\nfile_roots: {{base: [{box.root}/other]}}\n")
    assert look(Asked(box.salt, srv=box.root / "srv")).settings["file_roots"] == {"base": [f"{box.root}/other"]}
    (box.salt / "master").unlink()
    box.write("etc/salt/minion", "id: site-a\n")
    assert "file_roots" not in look(Asked(box.salt, srv=box.root / "srv")).settings


def test_nodegroups_of_salt_ssh_are_nodegroups(box: SaltBox) -> None:
    box.write("etc/salt/master", "id: site-a\nssh_list_nodegroups:\n  front: cam-1,cam-2\n  back: [cam-3]\n")
    looked = look(Asked(box.salt))
    assert looked.settings["nodegroups"] == {"front": ["cam-1", "cam-2"], "back": ["cam-3"]}
    assert verdict(looked, "ssh_list_nodegroups.back").where.endswith("master:4")


STOCK = {
    "master": "reactor: [{a: /a.sls}]\nloop_interval: 5\ninclude: [x/*.conf]\nnodegroups: {main: x}\n"
    "roster_defaults: {user: m, port: 1}\n",
    "master.d/1.conf": "reactor: [{b: /b.sls}]\nnodegroups: {one: 1a, both: 1b}\ninclude: more/*.conf\n"
    "engines: [{k: {q: 1}}]\nschedule: {s: {function: a, args: [1]}}\n",
    "master.d/more/a.conf": "nodegroups: {more: m}\nkeep_jobs: 3\n",
    "master.d/2.conf": "reactor: [{c: /c.sls}, {b: /b.sls}]\nnodegroups: {two: 2a, both: 2b}\nengines: [{l: 1}]\n"
    "keep_jobs: 4\nschedule: {s: {function: b, args: [2]}, t: {function: c}}\n",
    "master.d/.h.conf": "loop_interval: 99\n",
    "x/z.conf": "roster_defaults: {user: x}\nloop_interval: 9\n",
}
"""A configuration, and below what ``salt.config.master_config`` of stock Salt 3008 makes of it."""

STOCK_READS = {
    "reactor": [{"b": "/b.sls"}, {"c": "/c.sls"}],
    "loop_interval": 9,
    "nodegroups": {"more": "m", "two": "2a", "both": "2b"},
    "roster_defaults": {"user": "x"},
    "engines": [{"k": {"q": 1}}, {"l": 1}],
    "keep_jobs": 4,
    "schedule": {"s": {"function": "b", "args": [2]}, "t": {"function": "c"}},
}


def test_files_count_together_as_stock_salt_reads_them(tmp_path: Path) -> None:
    box = SaltBox(tmp_path)
    for name, text in STOCK.items():
        box.write(f"etc/salt/{name}", text)
    read = read_box(box.salt)
    assert {key: read.value("master", key) for key in STOCK_READS} == STOCK_READS
