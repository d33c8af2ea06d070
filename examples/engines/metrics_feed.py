"""Sends the numbers of beacons to a metrics service, as Datadog's series API takes them: no agent on any device.

    engines:
      - metrics_feed:
          url: https://api.datadoghq.com/api/v2/series
          key_file: /etc/outstation/metrics.key

Each number in the data of a beacon's event is a point: `salt.diskusage./`, tagged with the device and the site. Points
that the service does not take are dropped after three attempts, and counted: the next minute brings others.
"""

import calendar
import json
import logging
import math
import time
from pathlib import Path

import salt.utils.event

from gateway.engines.carry import NotTaken, TryLater
from gateway.engines.context import current
from gateway.engines.posting import check_url, post

log = logging.getLogger(__name__)


def start(url, key_file, tag="salt/beacon/", prefix="salt", every=10.0, most=500):
    """Gather points for `every` seconds, or `most` of them, and send them; for ever."""
    check_url(url)
    key = Path(key_file).read_text(encoding="ascii").strip()
    points, sent = [], time.monotonic()
    with salt.utils.event.get_event("master", opts=__opts__, listen=True) as bus:
        while True:
            event = bus.get_event(wait=1, tag=tag, full=True)
            if event:
                points += points_of(event, prefix)
            if points and (len(points) >= most or time.monotonic() - sent >= every):
                send(url, key, points)
                points, sent = [], time.monotonic()


def points_of(event, prefix):
    """The numbers in an event, wherever they stand in its data."""
    # salt/beacon/ID/BEACON/; a tag that was chosen may be shorter.
    words = [*event["tag"].split("/"), "", "", ""]
    device = event["data"].get("id", words[2])
    stamp = calendar.timegm(time.strptime(event["data"]["_stamp"][:19], "%Y-%m-%dT%H:%M:%S"))
    tags = [f"device:{device}", f"site:{event['data'].get('_site', '')}"]
    for path, value in numbers(event["data"]):
        name = ".".join([prefix, words[3] or words[0], *path])
        yield {"metric": name, "type": 3, "points": [{"timestamp": stamp, "value": value}], "tags": tags}


def numbers(data, path=()):
    """Every number with the words that lead to it; texts such as "93%" are numbers too, "nan" and "inf" are none."""
    for key, value in data.items():
        if key.startswith("_") or key == "id":
            continue
        if isinstance(value, dict):
            yield from numbers(value, (*path, str(key)))
            continue
        try:
            number = float(value.rstrip("%") if isinstance(value, str) else value)
        except (TypeError, ValueError):
            continue
        # JSON has no other numbers: one of those, and none of the points would be taken.
        if math.isfinite(number):
            yield (*path, str(key)), number


def send(url, key, points):
    """Three attempts."""
    body = json.dumps({"series": points}).encode()
    headers = {"Content-Type": "application/json", "DD-API-KEY": key}
    for attempt in range(3):
        try:
            post(url, body, headers, 10.0)
            current().report.add("points_sent", len(points))
            return
        except NotTaken as error:
            log.error("not taken: %s", error)
            break
        except TryLater as error:
            log.warning("attempt %d: %s", attempt + 1, error)
            time.sleep(2**attempt)
    current().report.add("points_dropped", len(points))
