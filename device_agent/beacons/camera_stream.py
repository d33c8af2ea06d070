"""``camera_stream``: whether the pictures of a camera can be had. Not one of Salt's."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Struct, to_builtins

from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.camera.asking import together

INTERVAL_SECONDS: Final = 60.0
FAILURES: Final = 2
STREAMS: Final = 32
PROBE_SECONDS: Final = 10.0
HIGHEST_PORT: Final = 65_535
_OPTIONS: Final = ("address", "http_port", "password", "path", "rtsp_port", "timeout", "username")


class _Stream(Struct, frozen=True):
    """The arguments of ``camera.probe``."""

    address: str
    rtsp_port: int
    http_port: int
    path: str
    username: str
    password: str
    timeout: float


class _State:
    __slots__ = ("down", "failures")

    def __init__(self) -> None:
        self.failures = 0
        self.down = False


class CameraStream(Looking):
    """``streams``: by name where each is, as ``camera.probe`` takes it; nothing means the device itself.

    It is told when one could not be had at ``failures`` looks one after the other, and when it can be had again.
    """

    interval: ClassVar[float] = INTERVAL_SECONDS

    def __init__(self, given: Given) -> None:
        given.only("streams", "failures")
        streams = given.values.get("streams", {"main": {}})
        if not isinstance(streams, dict) or not streams:
            raise given.wrong(
                "option streams must be a dictionary.", type(streams).__name__, "streams: {main: {path: /stream1}}"
            )
        if len(streams) > STREAMS:
            raise given.wrong(f"has at most {STREAMS} streams.", len(streams))
        self._streams = {str(name): _stream(given, str(name), each) for name, each in streams.items()}
        self._failures = int(given.number("failures", given.values.get("failures", FAILURES), 1, 1000))
        self._states = {name: _State() for name in self._streams}

    async def look(self, around: Around) -> list[Found]:
        """Each stream that cannot be had, and each that can be had again."""
        found = []
        reasons = await together(*(_why_not(around, stream) for stream in self._streams.values()))
        for (name, stream), why in zip(self._streams.items(), reasons, strict=True):
            state = self._states[name]
            shown = {"stream": name, "address": stream.address}
            if why:
                state.failures += 1
                if state.failures >= self._failures:
                    state.down = True
                    found.append(Found({**shown, "alive": False, "reason": why}, tag=name, same=False))
            else:
                state.failures = 0
                if state.down:
                    state.down = False
                    found.append(Found({**shown, "alive": True}, tag=name))
        return found


async def _why_not(around: Around, stream: _Stream) -> str:
    """Why there are no pictures; nothing when there are."""
    ended = await around.call("camera.probe", to_builtins(stream))
    said = ended.value if isinstance(ended.value, dict) else {}
    if not said:
        return ended.why or "it could not be asked"
    # Where it is to have a stream, a web page does not stand for it.
    asked = said.get("rtsp") or said.get("http") or {}
    if not asked.get("answers"):
        return str(asked.get("error") or "it does not answer")
    if "rtsp" in said:
        if any(each.get("media") == "video" for each in asked.get("streams", [])):
            return ""
        return str(asked.get("error") or "it has no stream of pictures")
    status = asked.get("status", 0)
    return "" if status < 400 else str(asked.get("error") or f"it answered {status}")


def _stream(given: Given, name: str, options: Any) -> _Stream:
    options = {} if options is None else options
    if not isinstance(options, dict):
        raise given.wrong(f"stream {name} must be a dictionary.", type(options).__name__, f"{name}: {{path: /stream1}}")
    if wrong := sorted(map(str, set(options) - set(_OPTIONS))):
        raise given.wrong(f"stream {name} has no option {wrong[0]}.", wrong[0], ", ".join(_OPTIONS))

    def text(option: str, default: str) -> str:
        if not isinstance(value := options.get(option, default), str):
            raise given.wrong(f"option {name}.{option} must be a text.", type(value).__name__)
        return value

    def port(option: str, default: int) -> int:
        return int(given.number(f"{name}.{option}", options.get(option, default), 0, HIGHEST_PORT))

    stream = _Stream(
        address=text("address", "127.0.0.1"),
        rtsp_port=port("rtsp_port", 554),
        http_port=port("http_port", 0),
        path=text("path", "/"),
        username=text("username", ""),
        password=text("password", ""),
        timeout=given.number(f"{name}.timeout", options.get("timeout", PROBE_SECONDS), 0.1, 60.0),
    )
    if not stream.rtsp_port and not stream.http_port:
        raise given.wrong(f"stream {name} must have an rtsp_port or an http_port.", None)
    return stream
