-- How far each key of a Salt master was heard: the number of the last publish that was taken under it. What is not above
-- it is a repeat, also after a restart.
CREATE TABLE salt_serials (
    key    TEXT PRIMARY KEY,             -- SHA-256 of the key that opens what the master publishes
    master TEXT NOT NULL,                -- its address, as configured
    serial INTEGER NOT NULL,
    at     REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX salt_serials_master ON salt_serials (master, at);

-- What was let go of salt_jobs so that it does not grow without end: no jid of this master up to here is taken again.
CREATE TABLE salt_marks (
    master TEXT PRIMARY KEY,
    jid    TEXT NOT NULL
) WITHOUT ROWID;
