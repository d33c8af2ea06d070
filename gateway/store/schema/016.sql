-- Pillar that was told from elsewhere, each sealed with the station's key: what a master compiled for a device of this
-- site, under the empty source, and what each outside source last said of a device. It is served while they are away.
CREATE TABLE pillar_kept (
    source TEXT NOT NULL,
    site   TEXT NOT NULL,
    device TEXT NOT NULL,
    sealed BLOB NOT NULL,
    told   REAL NOT NULL,
    PRIMARY KEY (source, site, device)
) WITHOUT ROWID;
