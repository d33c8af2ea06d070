-- The spool in streams, each numbered for itself, and the ledger that says what became of every item.
-- A stream is a table of its own, so that SQLite numbers it and never gives a number twice.

CREATE TABLE spool_returns   (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE spool_urgent    (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE spool_events    (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE spool_audit     (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE spool_telemetry (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
-- key is the tag of an event of which only the newest counts.
CREATE TABLE spool_state (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    key      TEXT NOT NULL,
    body     BLOB NOT NULL
);
CREATE INDEX spool_state_key ON spool_state (key);

-- Of each class: accepted = delivered + pending + all of its drops. pending_bytes are those of what is pending.
-- cut is only used inside a transaction that makes room: the sequence up to which a stream gives way.
CREATE TABLE ledger (
    class         TEXT PRIMARY KEY,
    accepted      INTEGER NOT NULL DEFAULT 0,
    delivered     INTEGER NOT NULL DEFAULT 0,
    pending_bytes INTEGER NOT NULL DEFAULT 0,
    cut           INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO ledger (class) VALUES ('returns'), ('events'), ('audit'), ('telemetry');

CREATE TABLE drops (
    class  TEXT NOT NULL,
    reason TEXT NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (class, reason)
) WITHOUT ROWID;

-- How much of a class each master, known by its key, has confirmed.
CREATE TABLE confirmations (
    master TEXT NOT NULL,
    class  TEXT NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (master, class)
) WITHOUT ROWID;

-- What waited in the spool before there were streams.
INSERT INTO spool_returns (body)
    SELECT body FROM spool WHERE kind NOT IN ('event', 'auditrecord') ORDER BY sequence;
INSERT INTO spool_events (body) SELECT body FROM spool WHERE kind = 'event' ORDER BY sequence;
INSERT INTO spool_audit (body) SELECT body FROM spool WHERE kind = 'auditrecord' ORDER BY sequence;
UPDATE ledger SET accepted = (SELECT count(*) FROM spool_returns),
    pending_bytes = (SELECT coalesce(sum(length(body)), 0) FROM spool_returns) WHERE class = 'returns';
UPDATE ledger SET accepted = (SELECT count(*) FROM spool_events),
    pending_bytes = (SELECT coalesce(sum(length(body)), 0) FROM spool_events) WHERE class = 'events';
UPDATE ledger SET accepted = (SELECT count(*) FROM spool_audit),
    pending_bytes = (SELECT coalesce(sum(length(body)), 0) FROM spool_audit) WHERE class = 'audit';
DELETE FROM spool;

-- A station above: how far each stream of a site is on disk here, what came, and what the site itself says of it.
CREATE TABLE site_positions (
    site     TEXT NOT NULL,
    stream   TEXT NOT NULL,
    epoch    TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (site, stream)
) WITHOUT ROWID;
CREATE TABLE site_received (
    site     TEXT NOT NULL,
    class    TEXT NOT NULL,
    received INTEGER NOT NULL,
    refused  INTEGER NOT NULL,
    PRIMARY KEY (site, class)
) WITHOUT ROWID;
CREATE TABLE site_ledgers (
    site TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    at   REAL NOT NULL
) WITHOUT ROWID;
