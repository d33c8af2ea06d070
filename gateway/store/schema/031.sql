-- How many commits the writer of this store has made, and the wall time of the last: the witness file beside the store
-- is compared with it at each start. store names this file, and is another after a restore. witnessed is 1 once a witness
-- of this store has been on disk.
CREATE TABLE store_commits (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    store     TEXT NOT NULL,
    number    INTEGER NOT NULL,
    at        REAL NOT NULL,
    witnessed INTEGER NOT NULL
);
