-- The tables of version 4, as programs made them.
CREATE TABLE jobs (
    key TEXT PRIMARY KEY NOT NULL,
    payload BLOB NOT NULL,
    due INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    pattern TEXT,
    zone TEXT,
    error TEXT,
    dead INTEGER NOT NULL,
    counted INTEGER,
    kind TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 4,
    queue TEXT NOT NULL DEFAULT 'default',
    unique_for INTEGER
) WITHOUT ROWID, STRICT;
CREATE INDEX jobs_by_lane ON jobs (queue, kind, priority, at) WHERE dead = 0;
CREATE INDEX jobs_dead ON jobs (key) WHERE dead = 1;
CREATE TABLE epoch (epoch INTEGER NOT NULL) STRICT;
INSERT INTO epoch VALUES (0);
CREATE INDEX jobs_counted ON jobs (counted, key) WHERE counted IS NOT NULL AND dead = 0;
CREATE TABLE paused (queue TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE kept (
    key TEXT PRIMARY KEY NOT NULL,
    until INTEGER NOT NULL,
    counted INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX kept_until ON kept (until);
CREATE INDEX kept_counted ON kept (counted);
PRAGMA user_version = 4;
-- Jobs in all states. A process has begun `running` and ended.
INSERT INTO jobs (key, payload, due, at, attempts, pattern, zone, error, dead, counted)
    SELECT column1, CAST('of ' || column1 AS BLOB), now + column2, now + column2, column3, column4,
        iif(column4 IS NULL, NULL, 'UTC'), column5, column6, now
    FROM (SELECT unixepoch() * 1000000 AS now), (VALUES
        ('cron', 0, 0, '0 0 1 1 *', NULL, 0),
        ('dead', 0, 8, NULL, 'broken', 1),
        ('due', 0, 0, NULL, NULL, 0),
        ('held', 0, 0, NULL, NULL, 0),
        ('later', 3600000000, 0, NULL, NULL, 0),
        ('retry', 0, 1, NULL, 'failed', 0),
        ('running', 0, 1, NULL, NULL, 0));
-- A job that is to keep its key, with a kind, in a queue that is paused; and a key that is kept.
INSERT INTO paused VALUES ('mails');
INSERT INTO jobs (key, payload, due, at, attempts, dead, counted, kind, priority, queue, unique_for)
    SELECT 'mail', CAST('of mail' AS BLOB), now, now, 0, 0, now, 'mail', 1, 'mails', 3600000000
    FROM (SELECT unixepoch() * 1000000 AS now);
INSERT INTO kept
    SELECT 'kept', now + 3600000000, now FROM (SELECT unixepoch() * 1000000 AS now);
