-- What keeps the talk with devices private: prekeys, the sessions opened with them, group keys, and who is out.

-- With a rowid, so that a private key is overwritten where it stands before its row goes.
CREATE TABLE prekeys (
    number  INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE,
    private BLOB NOT NULL,
    made    REAL NOT NULL
);

-- Every opening taken so far, for as long as its prekey lives: a second sight of one is a replay.
CREATE TABLE openings (
    prekey BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (prekey, digest)
) WITHOUT ROWID;

-- kid is that of the site key which counts these epochs. With a rowid for the same reason as prekeys.
CREATE TABLE epochs (
    number     INTEGER PRIMARY KEY,
    kid        BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    key        BLOB NOT NULL,
    made       REAL NOT NULL,
    revocation INTEGER NOT NULL,
    UNIQUE (kid, epoch)
);

-- This site's own list: version is that of the list in which the device was first named.
CREATE TABLE revoked_devices (
    kid     BLOB PRIMARY KEY,
    version INTEGER NOT NULL,
    revoked REAL NOT NULL
) WITHOUT ROWID;
