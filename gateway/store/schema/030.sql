-- How many equal refusals one row of the audit stands for: a caller who may do nothing must not fill the disk.
ALTER TABLE audit ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
