"""camera.*: a camera over plain sockets, with each login it may want, and one that misbehaves; RFC 7616's vectors."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.camera.jpeg import is_jpeg, size
from device_agent.camera.login import CannotLogIn, Challenge, Login, authorization, best, challenges
from device_agent.camera.streams import streams, without_login
from device_agent.ended import Ended
from device_agent.functions import camera as functions
from device_agent.local_host import LocalHost
from tests.peers.broker import free_port
from tests.peers.played_camera import PASSWORD, PICTURE, REALM, USER, PlayedCamera, played_camera

HOST = LocalHost({"id": "cam-1", "manufacturer": "Acme", "productname": "Dome 7", "serialnumber": "X1"})
SECRET = {"username": USER, "password": PASSWORD}
DIGESTS = ["MD5", "SHA-256", "MD5-sess", "SHA-256-sess"]


async def call(name: str, *arg: Any, **kwarg: Any) -> Ended:
    async with asyncio.timeout(60):
        return await loader.call(name, HOST, list(arg), kwarg)


async def probe(camera: PlayedCamera, **kwarg: Any) -> Ended:
    return await call(
        "camera.probe", rtsp_port=camera.port, http_port=camera.port, path="/stream1", **{**SECRET, **kwarg}
    )


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_example_of_the_standard_is_answered_as_it_says(algorithm: str, response: str) -> None:
    told = (
        f'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, '
        'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
    )
    [challenge] = challenges([told])
    sent = authorization(
        challenge,
        Login("Mufasa", "Circle of Life"),
        "GET",
        "/dir/index.html",
        cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
    )
    assert f'response="{response}"' in sent
    assert 'username="Mufasa"' in sent
    assert "nc=00000001, cnonce=" in sent


@pytest.mark.skipif("sha512_256" not in hashlib.algorithms_available, reason="this hashlib has no SHA-512/256")
def test_a_hidden_user_is_as_the_erratum_of_the_standard_says() -> None:
    told = (
        'Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, charset=UTF-8, userhash=true, '
        'nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS"'
    )
    [challenge] = challenges([told])
    sent = authorization(
        challenge,
        Login("Jäsøn Doe", "Secret, or not?"),
        "GET",
        "/doe.json",
        cnonce="NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v",
    )
    assert 'username="793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b"' in sent
    assert 'response="3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"' in sent


def test_the_strongest_login_is_taken_and_basic_only_without_any_digest() -> None:
    offered = challenges(
        ['Basic realm="a, Digest nonce=1", Digest realm="x", nonce="1", Digest realm="x", nonce="2", algorithm=SHA-256']
    )
    assert [each.scheme for each in offered] == ["Basic", "Digest", "Digest"]
    assert best(offered).algorithm == "SHA-256"
    assert best(challenges(['Basic realm="x"'])).scheme == "Basic"
    with pytest.raises(CannotLogIn):
        best(challenges(['Basic realm="x"', 'Digest realm="x", nonce="1", algorithm=SHA-1']))
    with pytest.raises(CannotLogIn):
        best([])


def test_a_login_does_not_show_itself() -> None:
    assert PASSWORD not in repr(Login(USER, PASSWORD))
    assert PASSWORD not in str(Challenge("Digest", {}))


@pytest.mark.parametrize("login", ["none", "basic", *DIGESTS])
@pytest.mark.parametrize("lets_go", [False, True])
async def test_a_camera_tells_its_streams_after_whatever_login_it_wants(login: str, lets_go: bool) -> None:
    async with played_camera(PlayedCamera(login=login, lets_go=lets_go)) as camera:
        ended = await probe(camera)
    assert (ended.outcome, camera.refused) == ("ok", 0), ended
    rtsp, http = ended.value["rtsp"], ended.value["http"]
    assert (rtsp["status"], http["status"], rtsp["server"]) == (200, 200, "PlayedCam/1.0")
    assert rtsp["methods"] == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]
    assert rtsp["login"] == {"none": "none", "basic": "basic"}.get(login, f"digest {login.upper()}")
    assert rtsp["name"] == "Dome 7"
    assert rtsp["base"] == "rtsp://192.0.2.20/"
    assert rtsp["streams"] == [
        {
            "media": "video",
            "payload": 96,
            "transport": "RTP/AVP",
            "kbit_per_second": 4096,
            "codec": "H264",
            "clock_rate": 90000,
            "profile": "4d001f",
            "width": 1920,
            "height": 1080,
            "frames_per_second": 25.0,
            "control": "rtsp://192.0.2.20/stream1/track1",
        },
        {
            "media": "audio",
            "payload": 8,
            "codec": "PCMA",
            "transport": "RTP/AVP",
            "control": "track2",
            "direction": "recvonly",
        },
    ]
    if login not in {"none", "basic"}:
        assert rtsp["realm"] == REALM
        assert camera.passwords_seen == []


@pytest.mark.parametrize("quality", ["", 'qop="auth", ', 'qop="auth-int,auth", '])
@pytest.mark.parametrize("new_nonces", [False, True])
async def test_old_and_strict_cameras_let_us_in(quality: str, new_nonces: bool) -> None:
    async with played_camera(PlayedCamera(login="SHA-256", quality=quality, new_nonces=new_nonces)) as camera:
        ended = await probe(camera)
    assert ended.value["rtsp"]["status"] == 200, ended
    assert camera.refused == (1 if new_nonces else 0)


async def test_a_refused_login_is_tried_once_and_nowhere_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with played_camera(PlayedCamera(login="SHA-256")) as camera:
        ended = await probe(camera, password="wrong pass/word")
        assert camera.refused == 2  # Once for each protocol.
        picture = await call("camera.snapshot", http_port=camera.port, username=USER, password="wrong pass/word")
        assert camera.refused == 3
    assert ended.value["rtsp"]["error"] == ended.value["http"]["error"] == "the login was refused"
    assert picture.why == "the camera gave no picture: the login was refused"
    assert "wrong pass" not in f"{ended}{picture}{caplog.text}"


async def test_without_a_login_it_is_said_that_one_is_needed() -> None:
    async with played_camera(PlayedCamera(login="MD5")) as camera:
        ended = await probe(camera, username="", password="")
    assert ended.value["rtsp"]["error"] == "a login is needed: give username and password"
    assert ended.value["rtsp"]["login"] == "digest MD5"
    assert camera.refused == 0


@pytest.mark.parametrize("login", ["none", "basic", "SHA-256"])
async def test_a_password_that_a_camera_repeats_is_withheld(login: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    both = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    async with played_camera(PlayedCamera(login=login, server=f"Cam ({both})")) as camera:
        ended = await probe(camera)
        told = await call("camera.info", "127.0.0.1", camera.port, camera.port, "/stream1", **SECRET)
    assert ended.value["http"]["title"] == "Dome 7 [withheld]"
    assert ended.value["rtsp"]["server"] == "Cam ([withheld])"
    for secret in (PASSWORD, both):
        assert secret not in f"{ended}{told}{caplog.text}"


async def test_the_info_of_a_camera_has_what_the_machine_says_of_itself() -> None:
    async with played_camera(PlayedCamera()) as camera:
        ended = await call("camera.info", rtsp_port=camera.port, http_port=camera.port, path="/stream1")
        other = await call("camera.info", "localhost.localdomain", 0, 0)
    assert (ended.value["manufacturer"], ended.value["productname"]) == ("Acme", "Dome 7")
    assert ended.value["answers"] == ["http", "rtsp"]
    assert len(ended.value["streams"]) == 2
    assert "manufacturer" not in other.value


async def test_where_nothing_listens_the_probe_fails_with_the_reasons() -> None:
    port = free_port()
    ended = await call("camera.probe", rtsp_port=port, http_port=port)
    assert ended.outcome == "failed"
    assert ended.why.startswith("the camera does not answer: rtsp: ")
    assert ended.value["rtsp"]["answers"] is False


# --- pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("lets_go", [False, True])
@pytest.mark.parametrize("login", ["none", "basic", "MD5", "SHA-256"])
async def test_a_picture_comes_whole(login: str, lets_go: bool, chunked: bool) -> None:
    async with played_camera(PlayedCamera(login=login, lets_go=lets_go, chunked=chunked)) as camera:
        ended = await call("camera.snapshot", http_port=camera.port, **SECRET)
    assert ended.outcome == "ok", ended
    assert base64.b64decode(ended.value["jpeg"]) == PICTURE
    assert (ended.value["width"], ended.value["height"], ended.value["bytes"]) == (640, 480, len(PICTURE))
    assert ended.value["sha256"] == hashlib.sha256(PICTURE).hexdigest()


async def test_the_usual_paths_are_tried_and_a_given_one_is_the_only_one() -> None:
    async with played_camera(PlayedCamera(picture_path="/jpg/image.jpg")) as camera:
        ended = await call("camera.snapshot", http_port=camera.port)
        assert ended.value["path"] == "/jpg/image.jpg"
        refused = await call("camera.snapshot", "/other.jpg", http_port=camera.port)
        page = await call("camera.snapshot", "/", http_port=camera.port)
    assert refused.why == "the camera gave no picture: /other.jpg answered 404 Not Found"
    assert "no JPEG that can be used" in page.why


async def test_a_large_picture_goes_into_a_file_on_the_device(tmp_path: Path) -> None:
    large = PICTURE[:-2] + bytes(functions.INLINE_BYTES) + b"\xff\xd9"
    async with played_camera(PlayedCamera(picture=large)) as camera:
        refused = await call("camera.snapshot", http_port=camera.port)
        ended = await call("camera.snapshot", http_port=camera.port, save_to=str(tmp_path / "door.jpg"))
        nowhere = await call("camera.snapshot", http_port=camera.port, save_to=str(tmp_path / "no" / "door.jpg"))
    assert (refused.outcome, refused.value["bytes"]) == ("failed", len(large))
    assert "give save_to a file" in refused.why
    assert ended.value["file"] == str(tmp_path / "door.jpg")
    assert "jpeg" not in ended.value
    assert (tmp_path / "door.jpg").read_bytes() == large
    assert "cannot be written" in nowhere.why


async def test_a_picture_that_never_ends_is_cut_off() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n\xff\xd8")
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    async with played_camera(PlayedCamera(misbehave=flood)) as camera:
        ended = await call("camera.snapshot", "/x.jpg", http_port=camera.port)
    assert "over 8 MiB" in ended.why


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"SSH-2.0-dropbear\r\n\r\n", "speaks another protocol"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "more than 128 headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000, "longer than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: minus\r\n\r\n", "is no number"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "ended within an answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "has no length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", "has no length"),
        (
            b"HTTP/1.1 401 No\r\nWWW-Authenticate: " + b'"\\"' * 1000 + b"\r\nContent-Length: 0\r\n\r\n",
            "a login that is not",
        ),
        (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Digest nonce\r\nContent-Length: 0\r\n\r\n", "a login that is not"),
        (b"", "without answer"),
    ],
)
async def test_whatever_a_camera_says_ends_in_a_reason(said: bytes, words: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    async with played_camera(PlayedCamera(misbehave=speak)) as camera:
        ended = await call("camera.snapshot", "/x.jpg", http_port=camera.port, **SECRET)
        probed = await probe(camera)
    assert ended.outcome == "failed"
    assert words in ended.why
    assert PASSWORD not in f"{ended}{probed}"


async def test_a_camera_that_wants_a_login_of_another_kind_answers_all_the_same() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        protocol = b"RTSP/1.0" if b"CSeq" in asked else b"HTTP/1.1"
        writer.write(protocol + b" 401 No\r\nCSeq: 1\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with played_camera(PlayedCamera(misbehave=speak)) as camera:
        ended = await probe(camera)
    assert ended.outcome == "ok"
    for found in (ended.value["rtsp"], ended.value["http"]):
        assert (found["answers"], found["status"], "not known here" in found["error"]) == (True, 401, True)


async def test_a_camera_that_says_nothing_holds_nobody_up() -> None:
    done = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        done.set()

    async with played_camera(PlayedCamera(misbehave=hang)) as camera:
        ended = await call("camera.snapshot", "/x.jpg", http_port=camera.port, timeout=0.5)
        await done.wait()
        probed = await call("camera.probe", rtsp_port=camera.port, http_port=0, timeout=0.5)
    assert ended.why == "the camera gave no picture within 0.5 seconds"
    assert probed.value["rtsp"]["error"] == "no answer within 0.5 seconds"


@pytest.mark.parametrize(
    "kwarg", [{"path": "/x\r\nHost: y"}, {"path": "x.jpg"}, {"address": "-x"}, {"address": "a b"}, {"http_port": 70000}]
)
async def test_arguments_that_are_no_path_or_address_are_refused(kwarg: dict[str, Any]) -> None:
    assert (await call("camera.snapshot", **kwarg)).outcome == "refused"


def test_a_description_is_read_as_far_as_it_makes_sense() -> None:
    assert without_login("rtsp://a:b@[::1]:554/x") == "rtsp://[::1]:554/x"
    assert without_login("rtsp://a:b/c@d@[::1]:554/x") == "rtsp://[::1]:554/x"
    for address in ("rtsp://a:554/x@y", "rtsp://[::1]:554/x@y", "rtsp://a/x@y", "track1", "rtsp://[broken"):
        assert without_login(address) == address
    assert streams("m=\nm=video x y z\na=framerate:1e400\na=rtpmap\nnonsense\n" + "m=audio 0 RTP/AVP 0\n" * 100)[
        -1
    ] == {"media": "audio", "payload": 0, "codec": "PCMU", "transport": "RTP/AVP"}


def test_what_is_no_picture_is_not_taken_for_one() -> None:
    assert is_jpeg(PICTURE)
    assert not is_jpeg(PICTURE[:-2])
    assert size(b"\xff\xd8" + b"\xff" * 100) == (0, 0)
    assert size(b"") == (0, 0)
