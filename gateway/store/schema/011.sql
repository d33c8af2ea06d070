-- What was taken from the outbox of each device of this station: ranges of sequences, as msgpack.
CREATE TABLE outboxes (
    device TEXT PRIMARY KEY,
    outbox BLOB NOT NULL,
    taken  BLOB NOT NULL
) WITHOUT ROWID;
