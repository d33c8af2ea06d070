-- What sites behind a relay said, as they signed it. A relay keeps these bytes to pass them on; elsewhere they are NULL,
-- except for devices, where the newest row is kept to recognise an older one.
ALTER TABLE jobs ADD COLUMN proven BLOB;
ALTER TABLE manifests ADD COLUMN proven BLOB;
ALTER TABLE outcomes ADD COLUMN proven BLOB;
ALTER TABLE devices ADD COLUMN proven BLOB;

-- Sites behind relays: when they first and last proved what they said, and what came without a proof.
CREATE TABLE relayed_sites (
    site       TEXT PRIMARY KEY,
    link       TEXT NOT NULL,
    first      REAL NOT NULL DEFAULT 0,      -- wall seconds; 0 for never
    proven     REAL NOT NULL DEFAULT 0,
    unproven   REAL NOT NULL DEFAULT 0,
    refused    INTEGER NOT NULL DEFAULT 0,
    refused_at REAL NOT NULL DEFAULT 0,
    reason     TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Which items of such a site have come: sequences of one stream of one store, as ranges.
CREATE TABLE proven_places (
    site   TEXT NOT NULL,
    stream TEXT NOT NULL,
    store  TEXT NOT NULL,
    ranges BLOB NOT NULL,
    issued INTEGER NOT NULL,                 -- of the newest batch
    PRIMARY KEY (site, stream, store)
) WITHOUT ROWID;
