-- What the devices believe of a job that came from above: signed and sealed by its issuer, for each site it is for.

CREATE TABLE job_seals (
    jid  TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- What a device's site says of its enrollment; empty for one that was never enrolled.
ALTER TABLE devices ADD COLUMN certificate BLOB NOT NULL DEFAULT x'';
ALTER TABLE devices ADD COLUMN state TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN accepted_by TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN accepted_at REAL NOT NULL DEFAULT 0;
