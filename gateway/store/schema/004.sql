-- Whom the sites below are to this station: what each asks its certificate with, what it was granted, its group key.

-- link is the site at the end of the uplink, the site itself or its relay. state is pending, accepted or rejected.
-- policy is as in a certificate, '' for the default; days how long its certificates last.
-- group_keys is the newest frame with the site's group key, as it came: sealed to each master.
CREATE TABLE site_trust (
    site        TEXT PRIMARY KEY,
    link        TEXT NOT NULL,
    state       TEXT NOT NULL,
    request     BLOB NOT NULL,
    certificate BLOB NOT NULL,
    policy      BLOB NOT NULL,
    days        INTEGER NOT NULL,
    group_keys  BLOB NOT NULL,
    first_seen  REAL NOT NULL,
    last_seen   REAL NOT NULL
) WITHOUT ROWID;

-- What came with the newest hello under this key.
ALTER TABLE keys ADD COLUMN request BLOB NOT NULL DEFAULT x'';
