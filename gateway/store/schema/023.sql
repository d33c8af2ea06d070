-- The station's schedule. A run is a row here before it is made, in the commit of what was done of its entry.
CREATE TABLE schedule_runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key    TEXT NOT NULL UNIQUE,
    entry  TEXT NOT NULL,
    due    REAL NOT NULL,
    at     REAL NOT NULL,
    kind   TEXT NOT NULL,                -- 'due', 'start', 'explicit' or 'asked'
    late   REAL NOT NULL,                -- seconds since its time, where it was missed
    state  TEXT NOT NULL,                -- 'waiting', 'issued', 'failed', 'refused' or 'missed'
    jid    TEXT,
    why    TEXT NOT NULL
);
CREATE INDEX schedule_runs_entry ON schedule_runs (entry, number);
CREATE INDEX schedule_runs_waiting ON schedule_runs (number) WHERE state = 'waiting';

-- What was done of each entry: its newest due time, its last run.
CREATE TABLE schedule_states (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- What an operator switched on or off; '' is the schedule as a whole.
CREATE TABLE schedule_switches (
    name    TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL
) WITHOUT ROWID;
