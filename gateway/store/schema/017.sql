-- What was taken of the events that each device fired: the highest sequence of its outbox, and how many it said it lost.
CREATE TABLE device_events (
    device  TEXT PRIMARY KEY,
    outbox  BLOB NOT NULL,
    through INTEGER NOT NULL,
    lost    INTEGER NOT NULL
) WITHOUT ROWID;
