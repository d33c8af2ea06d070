-- Salt 3008 publishes every part of a batch under one jid, each for other devices. The second part and those after it are
-- jobs of their own here, and are answered under the jid of the batch.
ALTER TABLE salt_jobs ADD COLUMN told_as TEXT NOT NULL DEFAULT '';
CREATE INDEX salt_jobs_told_as ON salt_jobs (told_as) WHERE told_as <> '';
