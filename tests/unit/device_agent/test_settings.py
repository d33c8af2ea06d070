"""device_agent/settings.py, settings_file.py and settings_words.py: any file gives settings, or says how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from device_agent.errors import ConfigInvalid
from device_agent.settings import Setting, describe, load


class Master(Struct, frozen=True, kw_only=True):
    """A master above."""

    address: Annotated[str, Meta(pattern=r"^tcp://\S+$(?!\n)", description="where it listens", examples=["tcp://a:1"])]
    weight: int = 1


class Broker(Struct, frozen=True, kw_only=True):
    """The broker of the site."""

    mode: Annotated[Literal["managed", "external", "off"], Meta(description="who runs it")] = "managed"
    port: Annotated[int, Meta(ge=1, le=65535, description="its port")] = 1884
    password: str | None = None


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of time."""

    first: int = 0
    last: int = 10

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError("first must not be over last")


class Station(Struct, frozen=True, kw_only=True):
    """Everything."""

    name: Annotated[str, Meta(min_length=1, max_length=8, description="name of the site", examples=["lisbon"])]
    seconds: Annotated[float, Meta(gt=0, description="seconds between beats")] = 60.0
    eager: bool = False
    note: str | None = None
    masters: Annotated[list[Master], Meta(max_length=2, description="best first")] = []
    broker: Broker = Broker()
    sites: Broker | None = None
    window: Window = Window()
    labels: dict[str, int] = {}
    extra: dict[str, Any] = {}
    either: list[str] | int | None = None


Load = Callable[..., Station]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Writes a file and its pieces, and loads them."""

    def loaded(text: str | bytes, **pieces: str) -> Station:
        file = tmp_path / "station.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        for name, piece in pieces.items():
            (tmp_path / "station.d").mkdir(exist_ok=True)
            (tmp_path / "station.d" / f"{name}.yaml").write_text(piece, encoding="utf-8")
        return load(Station, file)

    return loaded


def test_what_is_not_written_has_its_default(load_text: Load) -> None:
    assert load_text("name: lisbon\n") == Station(name="lisbon")


def test_every_kind_of_value_can_be_written(load_text: Load) -> None:
    text = """
        name: "007"
        seconds: 2
        eager: yes
        note: 'no'
        masters:
          - {address: "tcp://a:1"}
          - address: tcp://b:2
            weight: -3
        broker: {mode: off, port: 1883, password: "null"}
        sites:
        labels: {a: 1, "b.c": 2}
        extra: {a: [1, 2.5, true, no, null, text, 0123, 2024-01-01, {b: ""}]}
        either: [x]
    """
    assert load_text(text) == Station(
        name="007",
        seconds=2.0,
        eager=True,
        note="no",
        masters=[Master(address="tcp://a:1"), Master(address="tcp://b:2", weight=-3)],
        broker=Broker(mode="off", port=1883, password="null"),
        sites=Broker(),
        labels={"a": 1, "b.c": 2},
        extra={"a": [1, 2.5, True, False, None, "text", "0123", "2024-01-01", {"b": ""}]},
        either=["x"],
    )
    assert load_text("{name: a, seconds: 1e3, either: 5, sites: null, note: }") == Station(
        name="a", seconds=1000, either=5
    )
    assert load_text("name: a\nseconds: .5\n").seconds == 0.5


def test_an_alias_and_a_merge_stand_for_what_they_name(load_text: Load) -> None:
    text = "name: a\nbroker: &b {port: 5, mode: external}\nsites: {<<: *b, mode: managed}\n"
    assert load_text(text).sites == Broker(port=5, mode="managed")
    assert load_text("name: &n abc\nnote: *n\n").note == "abc"


def test_a_byte_order_mark_and_other_line_ends_do_not_matter(load_text: Load) -> None:
    assert load_text(b"\xef\xbb\xbfname: a\r\nseconds: 5\r\n") == Station(name="a", seconds=5)


def test_pieces_are_laid_over_the_file_in_the_order_of_their_names(load_text: Load) -> None:
    station = load_text(
        "name: a\nbroker: {port: 1, mode: external}\nmasters: [{address: 'tcp://a:1'}]\nlabels: {a: 1}\n",
        b20="broker: {port: 3}\nlabels: {b: 2}\n",
        b10="broker: {port: 2, password: x}\nmasters: [{address: 'tcp://b:1'}]\nname: b\n",
    )
    assert station == Station(
        name="b",
        broker=Broker(port=3, mode="external", password="x"),
        masters=[Master(address="tcp://b:1")],
        labels={"a": 1, "b": 2},
    )


def test_an_empty_piece_or_section_takes_nothing_away(load_text: Load) -> None:
    assert load_text("name: a\nbroker: {port: 2}\n", a="", b="# nothing\n", c="broker:\n") == Station(
        name="a", broker=Broker(port=2)
    )
    assert load_text("name: a\nsites: {port: 2}\n", a="sites: null\n").sites is None


def test_only_yaml_files_of_the_folder_are_pieces(load_text: Load, tmp_path: Path) -> None:
    folder = tmp_path / "station.d"
    folder.mkdir()
    for name in (".hidden.yaml", "old.yaml.bak", "README", "x.yml"):
        (folder / name).write_text("name: wrong\n", encoding="utf-8")
    assert load_text("name: a\n").name == "a"


# text, line, and a part of what, found, allowed and hint
WRONG: list[tuple[str, int, str, str, str, str]] = [
    ("nmae: a\n", 1, "no such setting", "nmae", "name, seconds, eager", "did you mean 'name'?"),
    (
        "name: a\nbroker:\n  prot: 1\n",
        3,
        "no such setting",
        "broker.prot",
        "mode, port, password",
        "did you mean 'port'?",
    ),
    ("name: a\nport: 1\n", 2, "no such setting", "port", "name, ", "did you mean broker.port?"),
    ("name: a\nmasters:\n  - adress: x\n", 3, "no such setting", "masters[0].adress", "address", "'address'"),
    ("", 1, "name is missing", "nothing", "text, 1 to 8 characters (name of the site)", "name: lisbon"),
    ("seconds: 1\n", 1, "name is missing", "only seconds", "name of the site", "name: lisbon"),
    ("name: a\nmasters:\n  - weight: 1\n", 3, "masters[0].address is missing", "only weight", "listens", "tcp://a:1"),
    ("name: 007\n", 1, "name cannot be this", "007 (YAML reads a whole number)", "text", 'quote it: name: "007"'),
    ("name: no\n", 1, "name", "no (YAML reads true or false)", "text", 'quote it: name: "no"'),
    ("name: 12:30\n", 1, "name", "12:30 (YAML reads a whole number)", "text", 'quote it: name: "12:30"'),
    ("name: 1.0\n", 1, "name", "1.0 (YAML reads a number)", "text", 'quote it: name: "1.0"'),
    ("name: 2024-01-01\n", 1, "name", "2024-01-01 (YAML reads a date)", "text", 'quote it: name: "2024-01-01"'),
    ("name: null\n", 1, "name", "null (nothing)", "text", 'quote it: name: "null"'),
    ("name:\n", 1, "name", "nothing", "text", "write a value behind name:"),
    ("name: a\nnote: 5\n", 2, "note", "5", "text or nothing", 'quote it: note: "5"'),
    ("name: waytoolong\n", 1, "name", "'waytoolong'", "1 to 8 characters", ""),
    ("name: [a]\n", 1, "name", "a list of 1", "text", ""),
    ("name: {a: 1}\n", 1, "name", "a section with a", "text", ""),
    ("name: a\nseconds: 0\n", 2, "seconds", "0", "a number over 0 (seconds between beats)", ""),
    ("name: a\nseconds: soon\n", 2, "seconds", "'soon'", "a number", ""),
    ("name: a\nseconds: '5'\n", 2, "seconds", "'5'", "a number", "without quotes: seconds: 5"),
    ("name: a\nseconds: .inf\n", 2, "seconds", ".inf", "a number", ""),
    ("name: a\nseconds: 1e999\n", 2, "seconds", "1e999", "a number", ""),
    ("name: a\nseconds: 1:30\n", 2, "seconds", "1:30", "a number", "base 60"),
    ("name: a\nseconds: true\n", 2, "seconds", "true", "a number", ""),
    ("name: a\nbroker: {port: 0}\n", 2, "broker.port", "0", "a whole number from 1 to 65535 (its port)", ""),
    ("name: a\nbroker: {port: 70000}\n", 2, "broker.port", "70000", "from 1 to 65535", ""),
    ("name: a\nbroker: {port: 0123}\n", 2, "broker.port", "0123", "a whole number", "octal"),
    ("name: a\nbroker: {port: 1.5}\n", 2, "broker.port", "1.5", "a whole number", "with all its digits"),
    ("name: a\nbroker: {port: 1e3}\n", 2, "broker.port", "'1e3'", "a whole number", "with all its digits"),
    ("name: a\nbroker: {port: '1'}\n", 2, "broker.port", "'1'", "a whole number", "without quotes: port: 1"),
    ("name: a\nbroker: {mode: manged}\n", 2, "broker.mode", "'manged'", "one of ", "did you mean 'managed'?"),
    ("name: a\nbroker: tcp\n", 2, "broker", "'tcp'", "a section with mode, port", "below broker:, indented"),
    ("name: a\nbroker: null\n", 2, "broker", "null (nothing)", "a section", ""),
    ("name: a\nsites: 5\n", 2, "sites", "5", "a section with mode, port, password or nothing", "below sites:"),
    ("name: a\neager: 1\n", 2, "eager", "1", "true or false", ""),
    ("name: a\nmasters: tcp://a:1\n", 2, "masters", "'tcp://a:1'", "a list", "masters: [tcp://a:1]"),
    ("name: a\nmasters:\n- {address: tcp}\n", 3, "masters[0].address", "'tcp'", "text matching ^tcp://", ""),
    ("name: a\nmasters: [1, 2, 3]\n", 2, "masters", "a list of 3", "at most 2 items (best first)", ""),
    ("name: a\nlabels: {x: y}\n", 2, "labels.x", "'y'", "a whole number", ""),
    ("name: a\nlabels: [x]\n", 2, "labels", "a list of 1", "a mapping, each value a whole number", ""),
    ("name: a\neither: {}\n", 2, "either", "a section", "a list, each text or a whole number or nothing", ""),
    ("name: a\nwindow: {first: 20}\n", 2, "first must not be over last", "", "", ""),
    ("name: a\nname: b\n", 2, "'name' is there twice", "first at line 1", "once", "put both under one 'name'"),
    ("name: a\nbroker:\n  port: 1\n  port: 2\n", 4, "'port' is there twice", "first at line 3", "", ""),
    ("- name\n", 1, "a settings file is a mapping", "a list of 1", "key: value", ""),
    ("name\n", 1, "a settings file is a mapping", "'name'", "key: value", ""),
    ("name: !secret a\n", 1, "tags have no meaning here", "!secret", "", "leave out the tag"),
    ("name: !!binary aGk=\n", 1, "tags have no meaning here", "binary", "", ""),
    ("? [a]\n: 1\n", 1, "a key must be a word", "", "", ""),
    ("name: a\n<<: 5\n", 2, "<< takes a mapping", "5", "", ""),
]


def parts(error: ConfigInvalid) -> tuple[str, ...]:
    return (error.what, error.found or "", error.allowed or "", error.hint or "")


@pytest.mark.parametrize(("text", "line", "what", "found", "allowed", "hint"), WRONG, ids=lambda each: repr(each)[:30])
def test_a_mistake_is_shown_with_its_line_and_how_to_mend_it(
    load_text: Load, tmp_path: Path, text: str, line: int, what: str, found: str, allowed: str, hint: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text(text)
    assert caught.value.where == f"{tmp_path}/station.yaml:{line}"
    for said, expected in zip(parts(caught.value), (what, found, allowed, hint), strict=True):
        assert expected in said


@pytest.mark.parametrize(
    ("text", "where", "what", "hint"),
    [
        ("name: a\nbroker:\n\tport: 1\n", ":3:1", "not YAML: ", "indent with spaces"),
        ("name: [a\n", ":2:1", "not YAML: ", "station.yaml, line 2"),
        ("name: a\n b: c\n", ":2:3", "not YAML: ", "sudoedit "),
        ("--- {name: a}\n--- {name: b}\n", ":2:1", "not YAML: expected a single document", ""),
        ("name: *a\n", ":1:7", "not YAML: ", ""),
        ("name: a\nnote: \0\n", ":2", "not YAML: a character that is not text", ""),
        ('name: "\\UFFFFFFFF"\n', "", "not YAML: ", ""),
        ("[" * 50_000, "", "not YAML: ", ""),
        ("a: " + "{a: " * 40 + "}" * 40, ":1", "values nest too deep", ""),
        ("a: &a [*a]\n", ":1", "values nest too deep", ""),
    ],
    ids=lambda each: repr(each)[:30],
)
def test_what_is_not_yaml_is_shown_with_line_and_column(
    load_text: Load, tmp_path: Path, text: str, where: str, what: str, hint: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text(text)
    assert caught.value.where == f"{tmp_path}/station.yaml{where}"
    assert what in caught.value.what
    assert hint in (caught.value.hint or "")


def test_aliases_of_aliases_cannot_fill_the_memory(load_text: Load) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    with pytest.raises(ConfigInvalid, match="too many values"):
        load_text("\n".join(lines))


def test_a_mistake_in_a_piece_names_the_piece(load_text: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text("name: a\nbroker: {port: 1}\n", late="# one\nbroker:\n  port: many\n")
    assert caught.value.where == f"{tmp_path}/station.d/late.yaml:3"
    with pytest.raises(ConfigInvalid) as caught:
        load_text("name: a\n", late="window: {last: -1}\n")
    assert caught.value.where == f"{tmp_path}/station.d/late.yaml:1"


def test_a_secret_is_not_repeated_in_an_error(load_text: Load) -> None:
    for text in ("name: a\nbroker: {password: 31337}\n", "name: a\nbroker: {password: 31337:00}\n"):
        with pytest.raises(ConfigInvalid) as caught:
            load_text(text)
        assert "31337" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    with pytest.raises(ConfigInvalid, match="there is no such settings file") as caught:
        load(Station, absent)
    assert (caught.value.where, caught.value.hint) == (str(absent), f"ls -l {tmp_path}")
    with pytest.raises(ConfigInvalid, match="Is a directory"):
        load(Station, tmp_path)


def test_a_folder_of_pieces_that_is_none_is_no_folder(load_text: Load, tmp_path: Path) -> None:
    (tmp_path / "station.d").write_text("name: b\n", encoding="utf-8")
    assert load_text("name: a\n").name == "a"


def test_a_file_that_is_not_utf_8_shows_the_line(load_text: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="not UTF-8") as caught:
        load_text("name: a\nnote: café\n".encode("latin-1"))
    assert caught.value.where == f"{tmp_path}/station.yaml:2"
    assert caught.value.found == "the byte 0xe9"
    assert caught.value.hint == f"iconv -f ISO-8859-1 -t UTF-8 {caught.value.where[:-2]} >{tmp_path}/station.utf8.yaml"


def test_a_file_over_its_size_is_refused_unread(load_text: Load) -> None:
    with pytest.raises(ConfigInvalid, match="too large"):
        load_text("#" * (1024 * 1024 + 1))


def test_the_table_describes_itself() -> None:
    rows = describe(Station)
    assert rows[:2] == [
        Setting("name", "text, 1 to 8 characters", "required", "name of the site"),
        Setting("seconds", "a number over 0", "60", "seconds between beats"),
    ]
    described = {row.key: row for row in rows}
    assert list(described) == [
        *("name", "seconds", "eager", "note", "masters", "masters[].address", "masters[].weight"),
        *("broker.mode", "broker.port", "broker.password"),
        *("sites", "sites.mode", "sites.port", "sites.password"),
        *("window.first", "window.last", "labels", "extra", "either"),
    ]
    assert described["masters"] == Setting("masters", "a list of sections", "[]", "best first")
    assert described["sites"] == Setting("sites", "a section", "none", "The broker of the site.")
    assert described["broker.port"] == Setting("broker.port", "a whole number from 1 to 65535", "1884", "its port")
    assert described["eager"].default == "false"


def test_a_type_no_file_can_hold_is_a_fault_of_the_table(tmp_path: Path) -> None:
    class Odd(Struct, frozen=True):
        when: set[int] = set()

    with pytest.raises(TypeError, match="cannot hold"):
        describe(Odd)


WORDS = "name seconds broker masters sites window extra port a 5 no 007 null 1e3 é [ ] { } << \\ # | ' \""
fragments = st.sampled_from(
    [*WORDS.split(), ": ", ":\n", "\n", "\n  ", "- ", ", ", "&a ", "*a", "!!int ", "\t", "---\n", "\0"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.lists(fragments, max_size=25).map("".join) | st.text(max_size=60))
@example("%YAML 1.99999\n--- a")
@example('name: "\\x"')
@example("name: \ud800")
@example("? a\n")
@example("!!map a: b")
@example("!!str {a: b}")
@example("!!seq {a: b}")
@example("=: a")
@example("name: !!float x")
@example("a: !!null {}")
@example("name: \x85a")
def test_any_text_is_settings_or_an_error_that_says_where(tmp_path: Path, text: str) -> None:
    file = tmp_path / "station.yaml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    try:
        station = load(Station, file)
    except ConfigInvalid as error:
        assert str(error.where).startswith(str(file))  # noqa: PT017 - it may be settings or not; not half
    else:
        assert isinstance(station, Station)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=st.binary(max_size=80))
def test_any_bytes_are_settings_or_an_error(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "station.yaml"
    file.write_bytes(body)
    try:
        assert isinstance(load(Station, file), Station)
    except ConfigInvalid as error:
        assert str(error.where).startswith(str(file))  # noqa: PT017 - it may be settings or not; not half


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    name=st.text(min_size=1, max_size=8),
    seconds=st.floats(0.001, 1e9),
    note=st.none() | st.text(max_size=20),
    port=st.integers(1, 65535),
    labels=st.dictionaries(st.text(max_size=5), st.integers(-(10**20), 10**20), max_size=4),
)
def test_what_a_yaml_library_writes_is_read_as_it_was(
    tmp_path: Path, name: str, seconds: float, note: str | None, port: int, labels: dict[str, int]
) -> None:
    values = {"name": name, "seconds": seconds, "note": note, "broker": {"port": port}, "labels": labels}
    file = tmp_path / "station.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert load(Station, file) == Station(
        name=name, seconds=seconds, note=note, broker=Broker(port=port), labels=labels
    )
