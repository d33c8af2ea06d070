"""The reference of ``bench fanout``: the least a program can do to send one message and count the answers.

A bare MQTT 3.1.1 client on a blocking socket, run as a plain script in a process of its own. It imports nothing but
Python's own library and knows nothing of jobs or devices: it publishes bytes it is given and counts topics.

Lines of JSON on standard input: first where the broker is and what to subscribe to (``host``, ``port``, ``filter``,
``seconds``, ``acknowledge_topic``, ``topic``), then for each round what to publish (``publish``, ``acknowledge``), how
many ``answers`` to wait for, and how many bytes one has at ``least``; bytes are hexadecimal. Lines of JSON on standard
output: ``ready``, then for each round ``answers`` and ``seconds``, or ``error``.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import time
from typing import Any

RECEIVED_BYTES = 256 * 1024
CONNACK_ACCEPTED = b"\x20\x02\x00\x00"
SUBACK_GRANTED = b"\x90\x03\x00\x01\x00"
DISCONNECT = b"\xe0\x00"


def field(content: bytes) -> bytes:
    """Text with its length before it (MQTT 3.1.1, 1.5.3)."""
    return struct.pack(">H", len(content)) + content


def packet(kind: int, body: bytes) -> bytes:
    """A packet: its first byte, the remaining length (2.2.3), its body."""
    length, coded = len(body), bytearray()
    while True:
        length, low = divmod(length, 128)
        coded.append(low | (0x80 if length else 0))
        if not length:
            return bytes((kind,)) + bytes(coded) + body


def connect(client_id: str) -> bytes:
    """CONNECT with a clean session and without keep-alive (3.1)."""
    return packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + field(client_id.encode()))


def subscribe(topic_filter: str) -> bytes:
    """SUBSCRIBE at QoS 0 (3.8)."""
    return packet(0x82, b"\x00\x01" + field(topic_filter.encode()) + b"\x00")


def publish(topic: str, payload: bytes) -> bytes:
    """PUBLISH at QoS 0 (3.3)."""
    return packet(0x30, field(topic.encode()) + payload)


def take(data: bytes, least: int, seen: set[bytes]) -> bytes:
    """Put the topic of every complete PUBLISH with so large a payload into ``seen``; returns what is not complete."""
    place, total = 0, len(data)
    while total - place >= 2:
        length, body, shift = data[place + 1], place + 2, 0
        if length > 127:
            length = 0
            body -= 1
            while body < total:
                digit = data[body]
                body += 1
                length |= (digit & 0x7F) << shift
                shift += 7
                if digit < 128:
                    break
            else:
                break
        end = body + length
        if end > total:
            break
        if data[place] == 0x30:
            start = body + 2 + (data[body] << 8 | data[body + 1])
            if end - start >= least:
                seen.add(data[body + 2 : start])
        place = end
    return data[place:] if place else data


def exactly(connection: socket.socket, expected: bytes, what: str) -> None:
    """Receive these bytes. Raises ``ConnectionError`` when others come."""
    received = b""
    while len(received) < len(expected):
        piece = connection.recv(len(expected) - len(received))
        if not piece:
            break
        received += piece
    if received != expected:
        raise ConnectionError(f"{what}: expected {expected.hex()}, received {received.hex()}")


def measure(
    connection: socket.socket, message: bytes, least: int, answers: int, seconds: float
) -> tuple[float, set[bytes]]:
    """Send, and collect answers with distinct topics: the seconds until the last, and what came in time."""
    seen: set[bytes] = set()
    rest = b""
    begun = time.perf_counter()
    connection.sendall(message)
    try:
        while len(seen) < answers and time.perf_counter() - begun < seconds:
            piece = connection.recv(RECEIVED_BYTES)
            if not piece:
                raise ConnectionError("the broker closed the connection")
            rest = take(rest + piece if rest else piece, least, seen)
    except TimeoutError:
        pass
    return time.perf_counter() - begun, seen


def one_round(connection: socket.socket, told: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Publish and collect."""
    message = publish(told["topic"], bytes.fromhex(asked["publish"]))
    seconds, seen = measure(connection, message, asked["least"], asked["answers"], told["seconds"])
    return {"answers": len(seen), "seconds": seconds}


def run(lines: Any, out: Any) -> None:
    """Talk to whoever started this script until its lines end."""
    told = json.loads(lines.readline())
    with socket.create_connection((told["host"], told["port"]), timeout=told["seconds"]) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(connect("reference"))
        exactly(connection, CONNACK_ACCEPTED, "CONNACK")
        connection.sendall(subscribe(told["filter"]))
        exactly(connection, SUBACK_GRANTED, "SUBACK")
        out.write('{"ready": true}\n')
        out.flush()
        for line in lines:
            asked = json.loads(line)
            out.write(json.dumps(one_round(connection, told, asked)) + "\n")
            out.flush()
            # After the answer is out, so that whoever reads it sees the cost of the round alone.
            connection.sendall(publish(told["acknowledge_topic"], bytes.fromhex(asked["acknowledge"])))
        connection.sendall(DISCONNECT)


def main() -> int:
    """The script; returns the exit status."""
    # It ends when its lines end; Ctrl-C is for whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(sys.stdin, sys.stdout)
    except OSError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
