-- The outcomes of one job in the order in which they came: what a job's story is told from, page by page.

CREATE INDEX outcomes_jid ON outcomes (jid);
