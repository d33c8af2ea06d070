-- What orchestrations do. name is the jid of the call, and within another orchestration that one's name with the step.
-- All steps are rows before the first of them is taken; what is begun and has no end is gone on with after a restart.
CREATE TABLE orchestrations (
    name     TEXT PRIMARY KEY,
    call     TEXT NOT NULL,
    operator TEXT NOT NULL,
    began    REAL NOT NULL,
    outcome  TEXT NOT NULL,              -- 'open', 'ok', 'failed' or 'cut'
    why      TEXT NOT NULL,
    ended    REAL
) WITHOUT ROWID;

CREATE TABLE orchestration_steps (
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    body   BLOB NOT NULL,
    state  TEXT NOT NULL,                -- 'waiting', 'begun' or 'ended'
    begun  REAL,
    since  BLOB,                         -- how far events and outcomes had come when it began
    job    TEXT,                         -- what it gave, in the commit of that
    ended  REAL,
    result BLOB,
    PRIMARY KEY (name, number)
) WITHOUT ROWID;
