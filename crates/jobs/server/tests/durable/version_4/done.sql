-- Ends jobs, as programs of version 4 do.
WITH n AS MATERIALIZED (
    SELECT key, token FROM unnest($1::text[], $2::bigint[]) AS n (key, token)),
kept AS (
    UPDATE durable_jobs j
    SET payload = '', dead = true, until = c.now + j.unique_for, counted = c.now, error = NULL,
        node = NULL, token = NULL, running = false
    FROM n, (SELECT durable_now() AS now) AS c
    WHERE j.key = n.key AND j.token = n.token AND j.unique_for IS NOT NULL
    RETURNING j.key, n.token),
gone AS (
    DELETE FROM durable_jobs j USING n
    WHERE j.key = n.key AND j.token = n.token AND j.unique_for IS NULL
    RETURNING j.key, n.token)
SELECT key, token FROM gone UNION ALL SELECT key, token FROM kept
