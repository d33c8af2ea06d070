"""Every bound that hostile input meets, in one place. Sizes are bytes, times are seconds."""

from __future__ import annotations

MESSAGE_BYTES = 256 * 1024
"""Largest payload on the device link; the broker enforces it too."""

ITEM_BYTES = 1024 * 1024
"""Largest item of a spool. What a device sent may grow when it is encoded again (a 32-bit float becomes a 64-bit one),
at most to less than twice its size: an item that was accepted here must never be one that a master refuses."""

UPLINK_FRAME_BYTES = 4 * 1024 * 1024
"""Largest frame on the uplink: a batch of items."""

BATCH_ITEMS = 1024
BATCH_BYTES = 1024 * 1024
"""A batch on the uplink is closed at whichever comes first."""

BATCHES_IN_FLIGHT = 8
"""Batches a gateway sends before it waits for a confirmation."""

VALUE_DEPTH = 16
VALUE_TEXT_BYTES = 128 * 1024
"""How deep a return value may nest, and how much text a function may return before it is cut and marked."""

EVENT_DATA_BYTES = 64 * 1024
"""Largest data of an event that is fired from outside, encoded."""

EVENTS_AT_ONCE = 1000
"""Most events in one request."""

TARGET_CHARACTERS = 128 * 1024
"""Longest target expression; a list of 8,000 device ids fits."""

TARGET_TERMS = 256
"""Most terms in a compound target."""

ARGUMENTS = 256
WHY_CHARACTERS = 4096
AUDIT_NAME_CHARACTERS = 130
AUDIT_TEXT_CHARACTERS = 1024
GRAINS_BYTES = 32 * 1024
CERTIFICATE_BYTES = 16 * 1024
DEVICES_PER_STATION = 20_000
LEAF_SITES = 1000
"""Sites that a station knows through relays."""

MANIFEST_PAGE = 2000
"""Device ids in one manifest page: 2,000 of the longest ids stay under MESSAGE_BYTES with room to spare."""

MANIFEST_PAGE_BYTES = 192 * 1024
REGISTRY_PAGE = 500

OPEN_JOBS = 1000
"""Jobs a station works on at once; one more is refused with ``busy``."""

DEVICE_QUEUE = 64
"""Jobs a device holds that have not started; one more is refused with ``busy``."""

DEVICE_RUNNING = 4
"""Jobs a device runs at once."""

JOURNAL_RESULTS = 256
"""Confirmed results a device keeps, to answer a late repeat without running again."""

JOB_EXPIRY_SECONDS = 300.0
"""Default expiry of a job with ``late=drop``."""

JOB_EXPIRY_LATE_SECONDS = 86_400.0
"""Default expiry of a job with ``late=run``."""

JOB_EXPIRY_MAX_SECONDS = 30 * 86_400.0
RUN_LIMIT_SECONDS = 3600.0
"""Default limit on how long a function may run on a device before it is stopped and answers ``timed_out``."""

RUN_LIMIT_MAX_SECONDS = 86_400.0

RECONNECT_CEILING_SECONDS = 30.0
"""Longest wait of a device between two attempts to reach its broker."""

RETURN_WINDOW_SECONDS = RECONNECT_CEILING_SECONDS + 15.0
"""How long a device that was here and is not heard is still expected back: the reconnect ceiling and some air."""

OUTBOX_BYTES = 8
"""The random name of a device's outbox."""

BEAT_SECONDS = 60.0
"""A device says it is alive this often; silent for 2.5 of these it is taken for gone."""

SILENT_BEATS = 2.5

RESEND_FIRST_SECONDS = 5.0
RESEND_CEILING_SECONDS = 30.0
"""Waits before a message that got no answer is sent again."""

PENDING_KEYS = 256
"""Keys in quarantine on a station with sites; the oldest unanswered one gives way."""

PENDING_KEYS_PER_SECOND = 20

JOIN_WINDOW_SECONDS = 7 * 86_400.0
"""Longest time that a join window is open."""

JOIN_TOKEN_SECONDS = 365 * 86_400.0
"""Longest life of a join token."""

CERTIFICATE_DAYS = 400
"""Longest life of a site certificate. Root lists are issued yearly; nothing they vouch for lasts much longer."""
