-- Writes the files of versions that have none.
-- $1 namespace, $2 name, $3 chart_ids, $4 chart_files_ids, $5 infos
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT row.chart_id, $2, $1, row.files_id, row.info::jsonb
FROM unnest($3::text[], $4::text[], $5::text[]) AS row (chart_id, files_id, info)
ON CONFLICT (repo_namespace, chart_files_id) DO NOTHING
