-- The mine: values that devices of this station, and of those below it, keep here for others to read.

-- link: the site below that told of it, or '' for a device of this station. revision rises with each change of anything
-- of the device; a row without values is one that has none any more, which the masters must hear.
CREATE TABLE mine_devices (
    site     TEXT NOT NULL,
    device   TEXT NOT NULL,
    link     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (site, device)
) WITHOUT ROWID;

-- kept: when the value was told, in wall seconds. changed: the revision that brought this value, or who may read it.
CREATE TABLE mine (
    site       TEXT NOT NULL,
    device     TEXT NOT NULL,
    name       TEXT NOT NULL,
    value      BLOB NOT NULL,
    allow_tgt  TEXT NOT NULL,
    allow_type TEXT NOT NULL,
    kept       REAL NOT NULL,
    changed    INTEGER NOT NULL,
    PRIMARY KEY (site, device, name)
);

CREATE INDEX mine_name ON mine (name, site, device);

-- How far each site below has told its mine, by the name of its store.
CREATE TABLE mine_positions (
    link     TEXT PRIMARY KEY,
    epoch    TEXT NOT NULL,
    revision INTEGER NOT NULL
) WITHOUT ROWID;
