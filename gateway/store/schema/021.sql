-- Which reactions those above were told of. What ended before there was this is not told of any more.
ALTER TABLE reactions ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE reactions SET told = 1 WHERE state <> 'waiting';
CREATE INDEX reactions_untold ON reactions (event, place) WHERE told = 0 AND state <> 'waiting';

-- Reactions of sites, as they tell of them: number is that of the event there, body the whole report.
CREATE TABLE site_reactions (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    site   TEXT NOT NULL,
    key    TEXT NOT NULL,
    jid    TEXT NOT NULL,
    tag    TEXT NOT NULL,
    stamp  REAL NOT NULL,
    number INTEGER NOT NULL,
    place  INTEGER NOT NULL,
    body   BLOB NOT NULL,
    at     REAL NOT NULL,
    UNIQUE (site, key)
);
CREATE INDEX site_reactions_jid ON site_reactions (jid) WHERE jid <> '';
CREATE INDEX site_reactions_tag ON site_reactions (tag, id);
CREATE INDEX site_reactions_event ON site_reactions (site, number);
CREATE INDEX site_reactions_at ON site_reactions (at);
