-- Of an event that came up from a site: site/epoch/stream/sequence of the item. NULL for the station's own events.
ALTER TABLE events ADD COLUMN origin TEXT;
