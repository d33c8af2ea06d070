-- Queues of the station: lists of things to do, by name.
CREATE TABLE queue_items (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    item  BLOB NOT NULL,
    UNIQUE (queue, item)
);
