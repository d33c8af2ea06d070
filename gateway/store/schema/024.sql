-- Jobs whose returns are sent on, and how far that is: the id of the last outcome that a returner had. Done when the job
-- is closed and all of its outcomes were had.
CREATE TABLE job_returners (
    jid      TEXT NOT NULL,
    returner TEXT NOT NULL,
    place    INTEGER NOT NULL DEFAULT 0,
    tries    INTEGER NOT NULL DEFAULT 0, -- in vain, since the place has changed
    since    REAL,                       -- of the first of them
    due      REAL NOT NULL DEFAULT 0,
    why      TEXT NOT NULL DEFAULT '',
    done     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (jid, returner)
) WITHOUT ROWID;
CREATE INDEX job_returners_open ON job_returners (returner, due) WHERE done = 0;

-- Outcomes that were a guess about a dark site when they were sent: what the site says later is sent as well.
CREATE TABLE returns_dark (
    jid      TEXT NOT NULL,
    returner TEXT NOT NULL,
    outcome  INTEGER NOT NULL,
    PRIMARY KEY (jid, returner, outcome)
) WITHOUT ROWID;

-- What a returner never had.
CREATE TABLE returns_lost (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    jid      TEXT NOT NULL,
    returner TEXT NOT NULL,
    site     TEXT NOT NULL,
    device   TEXT NOT NULL,
    why      TEXT NOT NULL,
    at       REAL NOT NULL
);
CREATE INDEX returns_lost_jid ON returns_lost (jid);
