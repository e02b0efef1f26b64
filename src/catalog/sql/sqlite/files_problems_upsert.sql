-- Writes failures, which count the tries of an archive, and warnings of imported archives, whose tries are 0.
-- $1 namespace, $2 name, $3 list of chart_id, chart_files_id, digest, tries (0 or 1), time of the next try, message
INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
SELECT $1, $2, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each($3) WHERE true
ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE SET digest = excluded.digest,
    tries = CASE WHEN portolan_files.digest = excluded.digest AND excluded.tries > 0
        THEN portolan_files.tries + 1 ELSE excluded.tries END,
    next_try = excluded.next_try, message = excluded.message
