-- What Salt masters ordered, by the jid they gave it: who is to be answered, and what another master needs to make sense
-- of the answers. A jid that is here is not taken a second time.
CREATE TABLE salt_jobs (
    jid       TEXT PRIMARY KEY,
    master    TEXT NOT NULL,             -- its address, as configured
    master_id TEXT NOT NULL,             -- what it calls itself, to be said again in the answers
    fun       TEXT NOT NULL,
    load      BLOB NOT NULL,             -- msgpack: the publish, without what was for this gateway alone
    ids       BLOB NOT NULL,             -- msgpack: the devices that are meant
    taken     REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX salt_jobs_taken ON salt_jobs (taken);
