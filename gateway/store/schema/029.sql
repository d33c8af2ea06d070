-- How much room each row of salt_jobs takes, and whether its answers still wait: what has been answered is let go of when
-- a master has ordered too much. waits are the answers that no master has confirmed yet.
CREATE TABLE salt_kept (
    jid     TEXT PRIMARY KEY,
    told_as TEXT NOT NULL,               -- the jid that the master knows it by
    master  TEXT NOT NULL,
    size    INTEGER NOT NULL,
    waits   INTEGER NOT NULL,
    taken   REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX salt_kept_master ON salt_kept (master, jid);
