-- Marks versions without a digest that have no row in files, because the empty rows that they get must differ from those of
-- charts without files.
-- $1 namespace, $2 name, $3 list of [chart_id, chart_files_id]
INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
SELECT $1, $2, value ->> 0, value ->> 1, '', 0, 0, ''
FROM json_each($3)
WHERE NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = value ->> 1)
ON CONFLICT DO NOTHING
