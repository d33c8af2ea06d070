-- Enrollment of devices: who asked, who was let in and by which proof, and what lets others in.

-- place is the index in the site's bitmaps; a revoked device keeps its row, so that nobody gets its place.
-- password_next and asked belong to an answer the device has not confirmed yet; spent are requests it has confirmed,
-- 16 bytes each, which would be replays.
CREATE TABLE enrolled (
    did           TEXT PRIMARY KEY,
    state         TEXT NOT NULL,         -- pending, accepted, quarantined, rejected, revoked
    name          TEXT NOT NULL,         -- '' while it has none
    place         INTEGER NOT NULL,      -- -1 while it has none
    sig           BLOB NOT NULL,
    kem           BLOB NOT NULL,
    serial        TEXT NOT NULL,
    model         TEXT NOT NULL,
    address       TEXT NOT NULL,
    certificate   BLOB NOT NULL,
    password_hash TEXT NOT NULL,
    password_next TEXT NOT NULL,
    asked         BLOB NOT NULL,
    spent         BLOB NOT NULL,
    proof         TEXT NOT NULL,         -- '', fingerprint, token, expected, pattern
    unproven      INTEGER NOT NULL,
    token         TEXT NOT NULL,
    accepted_by   TEXT NOT NULL,
    accepted_at   REAL,
    confirmed_at  REAL,
    first_seen    REAL NOT NULL,
    last_seen     REAL NOT NULL,
    detail        TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX enrolled_name ON enrolled (name) WHERE state IN ('accepted', 'quarantined');
CREATE UNIQUE INDEX enrolled_place ON enrolled (place) WHERE place >= 0;

-- The check is what makes taking a use atomic: a use too many fails, and with it the whole acceptance.
-- secret is emptied as soon as nobody can need it.
CREATE TABLE join_tokens (
    id       TEXT PRIMARY KEY,
    secret   BLOB NOT NULL,
    site     TEXT NOT NULL,
    uses     INTEGER NOT NULL,
    left     INTEGER NOT NULL CHECK (left >= 0),
    serial   TEXT NOT NULL,
    name     TEXT NOT NULL,
    address  TEXT NOT NULL,
    made     REAL NOT NULL,
    made_by  TEXT NOT NULL,
    expires  REAL NOT NULL,
    revoked  REAL
) WITHOUT ROWID;

-- The newest row is the window that is open, or was last.
CREATE TABLE join_windows (
    id        INTEGER PRIMARY KEY,
    opened    REAL NOT NULL,
    opened_by TEXT NOT NULL,
    closes    REAL NOT NULL,
    most      INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    subnet    TEXT NOT NULL,
    model     TEXT NOT NULL,
    closed    REAL,
    why       TEXT NOT NULL
);

-- key is a did, or a fingerprint without its dashes; a row goes when its device came.
CREATE TABLE expected_keys (
    key      TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    added    REAL NOT NULL,
    added_by TEXT NOT NULL
) WITHOUT ROWID;
