-- Devices that are reached over SSH: where, as whom, by which pinned host keys, and what opens the door.

-- With a rowid, so that a secret is overwritten where it stands before its row goes. The four last are sealed with a key
-- that is derived from the station's own, each to its column and to an identity: of site, name, nonce and fingerprints.
-- fingerprints and host_keys are lines; a host key is not known yet where only its fingerprint was given.
CREATE TABLE ssh_devices (
    number       INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    user         TEXT NOT NULL,
    host         TEXT NOT NULL,
    port         INTEGER NOT NULL,
    fingerprints TEXT NOT NULL,
    host_keys    TEXT NOT NULL,
    login        TEXT NOT NULL,         -- password, key, agent, certificate
    jump         TEXT NOT NULL,         -- the name of another SSH device, or ''
    poll_seconds REAL NOT NULL,
    enabled      INTEGER NOT NULL,
    added        REAL NOT NULL,
    added_by     TEXT NOT NULL,
    nonce        BLOB NOT NULL,
    password     BLOB NOT NULL,
    private_key  BLOB NOT NULL,
    passphrase   BLOB NOT NULL,
    certificate  BLOB NOT NULL
);

-- How an accepted device is reached: mqtt for one that has an agent and joined by itself, ssh for one that was added.
ALTER TABLE enrolled ADD COLUMN link TEXT NOT NULL DEFAULT 'mqtt';
