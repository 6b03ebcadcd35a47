-- Adds jobs in place of others, as programs of version 4 do.
WITH n AS MATERIALIZED (
         SELECT n.key, n.payload, n.pattern, n.zone, n.kind, n.priority, n.queue, n.unique_for,
             CASE WHEN n.is_delay THEN c.now + n.time ELSE n.time END AS at,
             CASE WHEN n.is_delay THEN c.now ELSE n.counted END AS counted
         FROM (SELECT durable_now() AS now) AS c,
             unnest($1::text[], $2::bytea[], $3::bigint[], $4::boolean[], $5::text[],
                 $6::text[], $8::bigint[], $9::text[], $10::smallint[], $11::text[],
                 $12::bigint[]) AS n
                 (key, payload, time, is_delay, pattern, zone, counted, kind, priority, queue,
                     unique_for)),
     old AS MATERIALIZED (
         SELECT key, running, until FROM durable_jobs WHERE key = ANY($1) ORDER BY key FOR UPDATE),
     replaced AS (
         UPDATE durable_jobs j
         SET payload = n.payload, due = n.at, at = n.at, attempts = 0, pattern = n.pattern,
             zone = n.zone, error = NULL, dead = false, node = NULL, token = NULL,
             running = false, counted = n.counted, kind = n.kind, priority = n.priority,
             queue = n.queue, unique_for = n.unique_for, until = NULL
         FROM n, old WHERE n.key = old.key AND j.key = old.key
         RETURNING j.key, j.at, CASE WHEN old.until IS NULL THEN old.running END AS running),
     added AS (
         INSERT INTO durable_jobs (key, payload, due, at, pattern, zone, counted, kind,
             priority, queue, unique_for)
         SELECT n.key, n.payload, n.at, n.at, n.pattern, n.zone, n.counted, n.kind,
             n.priority, n.queue, n.unique_for
         FROM n WHERE NOT EXISTS (SELECT FROM old WHERE old.key = n.key COLLATE "C")
         ORDER BY n.key COLLATE "C"
         ON CONFLICT DO NOTHING
         RETURNING key, at)
SELECT key, at, running, CASE WHEN at <= (SELECT durable_now()) + $7
    THEN pg_notify('durable_jobs', '') END
FROM (SELECT key, at, running FROM replaced
      UNION ALL SELECT key, at, NULL FROM added) AS done
