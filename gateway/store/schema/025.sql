-- What a throttle makes of an event, for each file of a rule that it bounds. joined is the event whose reaction stands for
-- this one too.
CREATE TABLE reactor_held (
    event  INTEGER NOT NULL,
    glob   TEXT NOT NULL,
    file   TEXT NOT NULL,
    key    TEXT NOT NULL,
    state  TEXT NOT NULL,                -- 'ready', 'waits', 'turn', 'held', 'joined', 'running' or 'done'
    why    TEXT NOT NULL,
    joined INTEGER NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (event, glob, file)
) WITHOUT ROWID;
CREATE INDEX reactor_held_open ON reactor_held (glob, file, key, event)
    WHERE state IN ('ready', 'waits', 'turn', 'running');
CREATE INDEX reactor_held_joined ON reactor_held (joined) WHERE joined <> 0;

-- Where the windows of throttles stand, in wall seconds: the last event that reacted, the day that is counted, when what
-- waits is due and how long it waits at most. spec is the throttle as it was then.
CREATE TABLE reactor_windows (
    glob       TEXT NOT NULL,
    file       TEXT NOT NULL,
    key        TEXT NOT NULL,
    last       REAL,
    last_event INTEGER NOT NULL,
    day        REAL,
    passes     INTEGER NOT NULL,
    due        REAL,
    wait       REAL NOT NULL,
    spec       BLOB NOT NULL,
    PRIMARY KEY (glob, file, key)
) WITHOUT ROWID;
