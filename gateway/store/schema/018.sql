-- What events set off. An event that matched a rule is a row here before anything is rendered for it, and each reaction
-- is one before it is made: whatever ends the station, what is waiting is taken up again.
-- source and number name the row that the event came from: 'event' one of events, 'outcome' one of outcomes.
CREATE TABLE reactor_events (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    source   TEXT NOT NULL,
    number   INTEGER NOT NULL,
    tag      TEXT NOT NULL,
    data     BLOB NOT NULL,
    stamp    REAL NOT NULL,
    site     TEXT NOT NULL,
    depth    INTEGER NOT NULL,
    state    TEXT NOT NULL,              -- 'waiting', 'rendered', 'stopped' or 'dropped'
    why      TEXT NOT NULL,
    troubles BLOB,
    matched  REAL NOT NULL,
    UNIQUE (source, number)
);
CREATE INDEX reactor_events_waiting ON reactor_events (id) WHERE state = 'waiting';

-- key is made of the event, the rule, the file and the reaction's id: it is the same however often this is tried.
CREATE TABLE reactions (
    key   TEXT PRIMARY KEY,
    event INTEGER NOT NULL,
    place INTEGER NOT NULL,
    body  BLOB NOT NULL,
    state TEXT NOT NULL,                 -- 'waiting', 'issued', 'failed', 'refused' or 'dropped'
    jid   TEXT,
    why   TEXT NOT NULL,
    ended REAL
) WITHOUT ROWID;
CREATE INDEX reactions_event ON reactions (event, place);
CREATE INDEX reactions_jid ON reactions (jid) WHERE jid IS NOT NULL;
CREATE INDEX reactions_waiting ON reactions (event) WHERE state = 'waiting';

-- How far the reactor has looked, by source.
CREATE TABLE reactor_seen (
    source TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) WITHOUT ROWID;
