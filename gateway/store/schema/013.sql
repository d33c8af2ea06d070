-- What the station remembers of jobs in the stead of devices that are reached over SSH: as an agent's journal does.

-- place: started, done (body is the encoded return, until it is confirmed) or forgotten (only that it must not run).
CREATE TABLE ssh_jobs (
    device   TEXT NOT NULL,
    jid      TEXT NOT NULL,
    place    TEXT NOT NULL,
    fun      TEXT NOT NULL,
    body     BLOB,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (device, jid)
);

-- The highest job number of each signer that ever started on a device.
CREATE TABLE ssh_marks (
    device TEXT NOT NULL,
    kid    BLOB NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (device, kid)
) WITHOUT ROWID;

-- The outbox of each device, the lowest sequence that is not reserved, and the newest jid of all refused by age.
CREATE TABLE ssh_outboxes (
    device   TEXT PRIMARY KEY,
    outbox   BLOB NOT NULL,
    reserved INTEGER NOT NULL,
    horizon  TEXT NOT NULL
) WITHOUT ROWID;

-- Over which link the devices of a row were handed the job: it is repeated over no other. Empty: before this release.
ALTER TABLE deliveries ADD COLUMN link TEXT NOT NULL DEFAULT '';
