-- A station above: jobs of which a site has said less than all, or was called dark. It is asked for them when it is back.
CREATE TABLE untold (
    number INTEGER PRIMARY KEY,
    site   TEXT NOT NULL,
    jid    TEXT NOT NULL,
    UNIQUE (site, jid)
);
CREATE INDEX untold_jid ON untold (jid);
