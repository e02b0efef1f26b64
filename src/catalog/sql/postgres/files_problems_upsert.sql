-- Writes failures, which count the tries of an archive, and warnings of imported archives, whose tries are 0.
-- $1 namespace, $2 name, $3 chart_ids, $4 chart_files_ids, $5 digests, $6 tries (0 or 1), $7 times of the next try, $8 messages
INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
SELECT $1, $2, row.* FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[]) AS row
ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE SET digest = excluded.digest,
    tries = CASE WHEN portolan_files.digest = excluded.digest AND excluded.tries > 0
        THEN portolan_files.tries + 1 ELSE excluded.tries END,
    next_try = excluded.next_try, message = excluded.message
