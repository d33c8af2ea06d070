-- Calls of the station itself: runners and wheels. Each is a row before it is made.
CREATE TABLE calls (
    jid     TEXT PRIMARY KEY,
    key     TEXT,                        -- what names it to whoever makes it once more: one key is one call
    body    BLOB NOT NULL,
    state   TEXT NOT NULL,               -- 'open', 'ok', 'failed', 'timed_out' or 'interrupted'
    tries   INTEGER NOT NULL DEFAULT 0,  -- how often it was begun again after an end of the station
    retcode INTEGER NOT NULL DEFAULT 0,
    value   BLOB,
    ended   REAL
) WITHOUT ROWID;
CREATE UNIQUE INDEX calls_key ON calls (key) WHERE key IS NOT NULL;
CREATE INDEX calls_open ON calls (state) WHERE state = 'open';
CREATE INDEX calls_ended ON calls (ended) WHERE ended IS NOT NULL;

-- The jobs that a call gave, each under a name of its own within the call: one that is made once more finds them again.
CREATE TABLE call_jobs (
    call TEXT NOT NULL,
    key  TEXT NOT NULL,
    jid  TEXT NOT NULL,
    PRIMARY KEY (call, key)
) WITHOUT ROWID;

-- Which call fired an event.
CREATE TABLE event_causes (
    event INTEGER PRIMARY KEY,
    jid   TEXT NOT NULL
);
CREATE INDEX event_causes_jid ON event_causes (jid);

-- What was added to the reactor map, and taken from it, while the station ran.
CREATE TABLE reactor_rules (
    event  TEXT NOT NULL,
    change TEXT NOT NULL,                -- 'added' or 'deleted'
    paths  BLOB NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (event, change)
);
