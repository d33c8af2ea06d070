-- The first schema. Later ones only add, so that the previous release can still read the file.

CREATE TABLE station (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- deadline is in this station's own wall time; issued and expires are the issuer's.
CREATE TABLE jobs (
    jid       TEXT PRIMARY KEY,
    body      BLOB NOT NULL,
    origin    TEXT NOT NULL,             -- 'local', 'above', or the site that issued it
    deadline  REAL NOT NULL,
    accepted  REAL NOT NULL,
    closed    REAL,
    expected  INTEGER,                   -- how many devices, known when it is closed
    cancelled INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX jobs_open ON jobs (closed) WHERE closed IS NULL;

-- Who was expected, page by page. link is '' for devices of this station, else the site that answered.
CREATE TABLE manifests (
    jid   TEXT NOT NULL,
    link  TEXT NOT NULL,
    page  INTEGER NOT NULL,
    site  TEXT NOT NULL,
    ids   BLOB NOT NULL,
    final INTEGER NOT NULL,
    PRIMARY KEY (jid, link, page)
) WITHOUT ROWID;

-- Devices to which a job was handed at least once: after a crash they may have run it.
CREATE TABLE deliveries (
    id  INTEGER PRIMARY KEY AUTOINCREMENT,
    jid TEXT NOT NULL,
    ids BLOB NOT NULL
);
CREATE INDEX deliveries_jid ON deliveries (jid);

-- One row for each site a job was meant for: waiting, sent, answered (manifest complete), closed.
CREATE TABLE job_sites (
    jid   TEXT NOT NULL,
    site  TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (jid, site)
) WITHOUT ROWID;

-- Exactly one outcome for each device and job.
CREATE TABLE outcomes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    jid        TEXT NOT NULL,
    site       TEXT NOT NULL,
    device     TEXT NOT NULL,
    link       TEXT NOT NULL,
    fun        TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    retcode    INTEGER NOT NULL,
    value      BLOB,
    why        TEXT NOT NULL,
    seen       REAL,
    ended      REAL NOT NULL,
    duration   REAL NOT NULL,
    executions INTEGER NOT NULL
);
CREATE UNIQUE INDEX outcomes_device ON outcomes (jid, site, device);

-- place is the index in the site's bitmaps; it is never given to another device.
CREATE TABLE devices (
    site       TEXT NOT NULL,
    id         TEXT NOT NULL,
    link       TEXT NOT NULL,
    place      INTEGER,
    agent      TEXT NOT NULL,
    grains     BLOB NOT NULL,
    present    INTEGER NOT NULL,
    first_seen REAL NOT NULL,
    last_seen  REAL NOT NULL,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (site, id)
) WITHOUT ROWID;
CREATE INDEX devices_revision ON devices (revision);

CREATE TABLE sites (
    site       TEXT PRIMARY KEY,
    epoch      TEXT NOT NULL DEFAULT '',
    confirmed  INTEGER NOT NULL DEFAULT 0,
    revision   INTEGER NOT NULL DEFAULT 0,
    release    TEXT NOT NULL DEFAULT '',
    address    TEXT NOT NULL DEFAULT '',
    since      REAL NOT NULL DEFAULT 0,
    last_seen  REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE keys (
    key        TEXT PRIMARY KEY,
    site       TEXT NOT NULL,
    state      TEXT NOT NULL,
    address    TEXT NOT NULL,
    first_seen REAL NOT NULL,
    last_seen  REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_site ON keys (site);

CREATE TABLE spool (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL,
    body     BLOB NOT NULL
);

CREATE TABLE events (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    tag   TEXT NOT NULL,
    data  BLOB NOT NULL,
    stamp REAL NOT NULL,
    site  TEXT NOT NULL
);
