-- The fence: a gateway and a master each remember by what marks they knew each other, so that a copy of a store is told.

-- On a gateway: the marks of this store, by the key of the master. welcomed is 1 for those that the master answered.
CREATE TABLE marks (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    master   TEXT NOT NULL,
    mark     BLOB NOT NULL,
    welcomed INTEGER NOT NULL DEFAULT 0
);

-- On a master: the mark of the gateway that was welcome last, and what is known of another one with the same store.
-- renew is the epoch under which a gateway may not go on, which it shares with the other.
CREATE TABLE site_marks (
    site    TEXT PRIMARY KEY,
    mark    BLOB NOT NULL,
    epoch   TEXT NOT NULL,
    renew   TEXT NOT NULL DEFAULT '',
    twin    BLOB NOT NULL DEFAULT x'',
    address TEXT NOT NULL DEFAULT '',
    seen    REAL NOT NULL DEFAULT 0,
    count   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
