-- Operators: the audit, tokens of the API, jobs that wait for a release.

-- mark names a row of a station for ever, so that what is sent twice is kept once.
CREATE TABLE audit (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    site      TEXT NOT NULL,
    mark      TEXT NOT NULL,
    at        REAL NOT NULL,
    user      TEXT NOT NULL,
    door      TEXT NOT NULL,
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    verdict   TEXT NOT NULL,
    why       TEXT NOT NULL,
    jid       TEXT NOT NULL,
    fun       TEXT NOT NULL,
    arguments TEXT NOT NULL
);
CREATE UNIQUE INDEX audit_mark ON audit (site, mark);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_jid ON audit (jid) WHERE jid <> '';

-- What is left of the outcomes of a job when the job itself is let go: devices is a JSON list of ids.
CREATE TABLE audit_outcomes (
    jid     TEXT NOT NULL,
    site    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    why     TEXT NOT NULL,
    devices TEXT NOT NULL,
    ended   REAL NOT NULL,
    PRIMARY KEY (jid, site, outcome, why)
) WITHOUT ROWID;
CREATE INDEX audit_outcomes_ended ON audit_outcomes (ended);

-- Only a hash of a token is kept; id is what a person names it by.
CREATE TABLE api_tokens (
    id      TEXT PRIMARY KEY,
    hash    BLOB NOT NULL UNIQUE,
    user    TEXT NOT NULL,
    role    TEXT NOT NULL,               -- '' when the policy file decides by the user's name
    made_by TEXT NOT NULL,
    made    REAL NOT NULL,
    expires REAL NOT NULL,
    used    REAL,
    revoked REAL
) WITHOUT ROWID;

-- 1 while a job waits for an approver's release.
ALTER TABLE jobs ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
