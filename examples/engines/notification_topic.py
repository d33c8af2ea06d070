"""Publishes every event to a topic of a notification service, as Amazon SNS takes them: for audits, and cloud tooling.

    engines:
      - notification_topic:
          url: https://sns.eu-west-1.amazonaws.com/
          topic: arn:aws:sns:eu-west-1:123456789012:site-events
          region: eu-west-1
          credentials_file: /etc/outstation/aws.json

The file has `{"access_key": …, "secret_key": …}`. Events are read from the station's disk: each is published at least
once, also after the station was killed. Requests are signed with AWS Signature Version 4
(https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html).
"""

import hashlib
import hmac
import json
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from gateway.engines.carry import carry
from gateway.engines.context import current
from gateway.engines.feed import Feed
from gateway.engines.posting import check_url, post

MESSAGE_BYTES = 240 * 1024


def start(url, topic, region, credentials_file, tag="*", service="sns"):
    """Publish for ever."""
    check_url(url)
    keys = json.loads(Path(credentials_file).read_text(encoding="utf-8"))

    def send(events):
        for event in events:
            told = {"tag": event.tag, "data": event.data, "site": event.site, "_stamp": event.stamp, "id": event.key}
            message = json.dumps(told)
            if len(message.encode()) > MESSAGE_BYTES:
                message = json.dumps({**told, "data": "too large for a notification"})
            form = {"Action": "Publish", "Version": "2010-03-31", "TopicArn": topic, "Message": message}
            form["Subject"] = event.tag.encode("ascii", "replace").decode()[:100]
            body = urlencode(form).encode()
            post(url, body, signed(url, body, keys, region, service, time.gmtime()), 10.0)

    carry(Feed(current(), tag), send, current().report)


def signed(url, body, keys, region, service, now):
    """The headers of a request, with its signature."""
    parts, day, moment = urlsplit(url), time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    names = "content-type;host;x-amz-date"
    canonical = (
        f"POST\n{parts.path or '/'}\n{parts.query}\n"
        f"content-type:{kind}\nhost:{parts.netloc}\nx-amz-date:{moment}\n\n{names}\n{digest(body)}"
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    key = f"AWS4{keys['secret_key']}".encode()
    for word in (day, region, service, "aws4_request"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest(canonical.encode())}"
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={keys['access_key']}/{scope}"
    return {
        "Content-Type": kind,
        "X-Amz-Date": moment,
        "Authorization": f"{credential}, SignedHeaders={names}, Signature={signature}",
    }


def digest(body):
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(body).hexdigest()
