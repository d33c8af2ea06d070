"""The camera behind the device, or the device itself: what it is, whether it answers, a picture of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from device_agent.camera.asking import HTTP_PORT, RTSP_PORT, UNAUTHORIZED, Asking, together
from device_agent.camera.jpeg import is_jpeg, size
from device_agent.camera.login import CannotLogIn, Login
from device_agent.camera.streams import session_name, streams, without_login
from device_agent.camera.text import Answer, NoAnswer
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.peer_name import PeerName

DESCRIPTION_BYTES = 64 * 1024
PAGE_BYTES = 16 * 1024
PICTURE_BYTES = 8 * 1024 * 1024
"""Largest picture that is stored on the device."""

INLINE_BYTES = 160 * 1024
"""Largest picture in a return: a message has room for its base64."""

PICTURE_PATHS = (
    "/snapshot.jpg",
    "/axis-cgi/jpg/image.cgi",
    "/ISAPI/Streaming/channels/101/picture",
    "/cgi-bin/snapshot.cgi",
    "/jpg/image.jpg",
    "/image.jpg",
    "/snap.jpg",
    "/tmpfs/auto.jpg",  # noqa: S108 - a path on a camera's web server
)
"""Where cameras have their picture, tried in this order when no path is given."""

WITHHELD = "[withheld]"
MACHINE_GRAINS = ("manufacturer", "productname", "serialnumber", "osfullname", "osrelease", "kernelrelease")

Port = Annotated[int, Meta(ge=0, le=65535)]
Path = Annotated[str, Meta(min_length=1, max_length=2048, pattern=r"^/[\x21-\x7e]*$(?!\n)")]
Seconds = Annotated[float, Meta(gt=0, le=120)]
Word = Annotated[str, Meta(max_length=256)]


async def probe(
    host: Host,
    address: PeerName = "127.0.0.1",
    rtsp_port: Port = RTSP_PORT,
    http_port: Port = HTTP_PORT,
    path: Path = "/",
    username: Word = "",
    password: Word = "",
    timeout: Seconds = 10.0,
) -> dict[str, Any]:
    """Ask a camera over RTSP and HTTP whether it answers, how it wants to be logged in to, and which streams it has.

    The device asks, so 127.0.0.1 is the device itself; port 0 leaves a protocol out. ``path`` is that of the stream.
    The login is sent as a digest where the camera offers one. It is failed when neither protocol answers.

    CLI Example:

        outstation run 'cam-*' camera.probe
        outstation run gate-1 camera.probe 192.0.2.20 path=/stream1 username=viewer password=… --sealed
    """
    login = Login(username, password)
    asked = {}
    if rtsp_port:
        asked["rtsp"] = _rtsp(host, address, rtsp_port, path, login, timeout)
    if http_port:
        asked["http"] = _http(host, address, http_port, login, timeout)
    found = dict(zip(asked, await together(*asked.values()), strict=True))
    shown: dict[str, Any] = _withheld(found, login)
    if not any(each["answers"] for each in shown.values()):
        reasons = "; ".join(f"{name}: {each['error']}" for name, each in shown.items())
        raise FunctionFailed(f"the camera does not answer: {reasons or 'both ports are 0'}", value=shown)
    return shown


async def info(
    host: Host,
    address: PeerName = "127.0.0.1",
    rtsp_port: Port = RTSP_PORT,
    http_port: Port = HTTP_PORT,
    path: Path = "/",
    username: Word = "",
    password: Word = "",
    timeout: Seconds = 10.0,
) -> dict[str, Any]:
    """Return what can be known of a camera: what its servers call themselves, its streams, and of a device that is a
    camera itself maker, model, serial number and firmware. The arguments are those of ``camera.probe``.

    CLI Example:

        outstation run 'cam-*' camera.info
    """
    try:
        found = await probe(host, address, rtsp_port, http_port, path, username, password, timeout)
    except FunctionFailed as failed:
        found = failed.value
    rtsp, http = found.get("rtsp", {}), found.get("http", {})
    itself = address in {"127.0.0.1", "::1", "localhost"}
    grains = {name: host.grains[name] for name in MACHINE_GRAINS if name in host.grains} if itself else {}
    return {
        **grains,
        "rtsp_server": rtsp.get("server", ""),
        "http_server": http.get("server", ""),
        "title": http.get("title", ""),
        "realm": http.get("realm") or rtsp.get("realm", ""),
        "streams": rtsp.get("streams", []),
        "answers": sorted(name for name, each in found.items() if each["answers"]),
    }


async def snapshot(
    host: Host,
    path: Path | None = None,
    address: PeerName = "127.0.0.1",
    http_port: Annotated[int, Meta(ge=1, le=65535)] = HTTP_PORT,
    username: Word = "",
    password: Word = "",
    save_to: Annotated[str, Meta(min_length=1, pattern=r"^/")] | None = None,
    timeout: Seconds = 20.0,
) -> dict[str, Any]:
    """Take one picture from a camera over HTTP: a JPEG as base64 in ``jpeg``, or in a file on the device.

    Without ``path`` the usual ones are tried. A picture of more than 160 KiB does not fit into a return: with
    ``save_to`` it goes into that file on the device, up to 8 MiB.

    CLI Example:

        outstation run 'cam-1' camera.snapshot
        outstation run 'gate-1' camera.snapshot /jpg/image.jpg 192.0.2.20 save_to=/var/tmp/door.jpg
    """
    login = Login(username, password)
    try:
        async with asyncio.timeout(timeout), Asking(host, address, http_port, "HTTP/1.1", login) as asking:
            where, picture = await _picture(asking, [path] if path else list(PICTURE_PATHS))
    except TimeoutError:
        raise FunctionFailed(f"the camera gave no picture within {timeout:g} seconds") from None
    except (OSError, NoAnswer, CannotLogIn) as error:
        raise FunctionFailed(_withheld(f"the camera gave no picture: {_said(error)}", login)) from None
    width, height = size(picture)
    taken = {
        "path": where,
        "bytes": len(picture),
        "width": width,
        "height": height,
        "sha256": hashlib.sha256(picture).hexdigest(),
    }
    if save_to is not None:
        try:
            await host.write(save_to, picture)
        except OSError as error:
            raise FunctionFailed(f"{save_to} cannot be written: {error.strerror or error}", value=taken) from error
        return taken | {"file": save_to}
    if len(picture) > INLINE_BYTES:
        raise FunctionFailed(
            f"the picture has {len(picture)} bytes, a return has room for {INLINE_BYTES}: give save_to a file",
            value=taken,
        )
    return taken | {"jpeg": base64.b64encode(picture).decode()}


async def _picture(asking: Asking, paths: list[str]) -> tuple[str, bytes]:
    """The first picture there is. A refused login ends the search: another try might lock the account."""
    said = ""
    for path in paths:
        answer = await asking.ask("GET", path, PICTURE_BYTES, {"Accept": "image/jpeg"})
        if answer.status == UNAUTHORIZED:
            raise CannotLogIn(_refusal(asking))
        if answer.status == 200 and is_jpeg(answer.body) and not answer.cut:
            return path, answer.body
        said = f"{path} answered {answer.status} {answer.reason}".strip()
        if answer.status == 200:
            kind = answer.header("content-type") or "something without a type"
            said = f"{path} is {'over 8 MiB' if answer.cut else kind[:80]}, no JPEG that can be used"
    raise NoAnswer(said if len(paths) == 1 else f"none of the {len(paths)} usual paths has one; give path")


async def _rtsp(host: Host, address: str, port: int, path: str, login: Login, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"answers": False, "port": port}
    try:
        async with asyncio.timeout(seconds), Asking(host, address, port, "RTSP/1.0", login) as asking:
            options = await asking.ask("OPTIONS", path, DESCRIPTION_BYTES)
            found |= {"answers": True, "status": options.status, "server": _server(options)}
            found["methods"] = [word.strip() for word in options.header("public").split(",") if word.strip()][:32]
            described = options
            if options.status != UNAUTHORIZED:
                described = await asking.ask("DESCRIBE", path, DESCRIPTION_BYTES, {"Accept": "application/sdp"})
            found |= {"status": described.status, "server": found["server"] or _server(described)}
            found |= _login(asking)
            if described.status == 200:
                text = described.body.decode(errors="replace")
                found |= {"name": session_name(text), "streams": streams(text)}
                found["base"] = without_login(described.header("content-base"))
            else:
                found["error"] = _refusal(asking) if described.status == UNAUTHORIZED else _status(described)
    except TimeoutError:
        found["error"] = f"no answer within {seconds:g} seconds"
    except CannotLogIn as error:
        # It answered, with a wish that nobody here can fulfil.
        found |= {"answers": True, "status": UNAUTHORIZED, "error": _said(error)}
    except (OSError, NoAnswer) as error:
        found["error"] = _said(error)
    return found


async def _http(host: Host, address: str, port: int, login: Login, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"answers": False, "port": port}
    try:
        async with asyncio.timeout(seconds), Asking(host, address, port, "HTTP/1.1", login) as asking:
            page = await asking.ask("GET", "/", PAGE_BYTES)
            found |= {"answers": True, "status": page.status, "server": _server(page), "title": _title(page)}
            found |= _login(asking)
            if page.header("location"):
                found["location"] = without_login(page.header("location"))[:256]
            if page.status == UNAUTHORIZED:
                found["error"] = _refusal(asking)
    except TimeoutError:
        found["error"] = f"no answer within {seconds:g} seconds"
    except CannotLogIn as error:
        # It answered, with a wish that nobody here can fulfil.
        found |= {"answers": True, "status": UNAUTHORIZED, "error": _said(error)}
    except (OSError, NoAnswer) as error:
        found["error"] = _said(error)
    return found


def _server(answer: Answer) -> str:
    return answer.header("server")[:256]


def _title(answer: Answer) -> str:
    text = answer.body.decode(errors="replace")
    start = text.lower().find("<title>")
    return " ".join(text[start + 7 :].partition("<")[0].split())[:128] if start >= 0 else ""


def _login(asking: Asking) -> dict[str, str]:
    asked = asking.challenge
    if asked is None:
        return {"login": "none"}
    how = f"digest {asked.algorithm}" if asked.scheme == "Digest" else "basic"
    return {"login": how, "realm": asked.realm}


def _refusal(asking: Asking) -> str:
    return "the login was refused" if asking.logs_in else "a login is needed: give username and password"


def _status(answer: Answer) -> str:
    return f"it answered {answer.status} {answer.reason}".strip()[:256]


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return " ".join(str(error).split())[:400]


def _withheld(value: Any, login: Login) -> Any:
    """The same without the password, wherever a camera may have put it and in whichever of the forms it was sent."""
    if not login.password:
        return value
    if isinstance(value, str):
        both = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        for secret in (both, quote(login.password, safe=""), login.password):
            value = value.replace(secret, WITHHELD)
        return value
    if isinstance(value, dict):
        return {name: _withheld(inner, login) for name, inner in value.items()}
    if isinstance(value, list):
        return [_withheld(inner, login) for inner in value]
    return value
