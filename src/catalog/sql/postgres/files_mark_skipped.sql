-- Marks versions without a digest that have no row in files, because the empty rows that they get must differ from those of
-- charts without files.
-- $1 namespace, $2 name, $3 chart_ids, $4 chart_files_ids
INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
SELECT $1, $2, row.chart_id, row.files_id, '', 0, 0, ''
FROM unnest($3::text[], $4::text[]) AS row (chart_id, files_id)
WHERE NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = row.files_id)
ON CONFLICT DO NOTHING
