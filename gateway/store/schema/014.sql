-- What masters answered about files, so that the site has it while it is cut off. No answer: there is nothing.
CREATE TABLE kept_answers (
    about  TEXT NOT NULL,
    body   BLOB NOT NULL,
    answer BLOB,
    at     REAL NOT NULL,
    PRIMARY KEY (about, body)
) WITHOUT ROWID;
