-- Writes the files of a version. An equal row, and one of another chart with the same chart_files_id, is not touched.
-- $1 chart_id, $2 name, $3 namespace, $4 chart_files_id, $5 info
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info) VALUES ($1, $2, $3, $4, $5::jsonb)
ON CONFLICT (repo_namespace, chart_files_id) DO UPDATE SET info = excluded.info
    WHERE files.chart_id = excluded.chart_id AND files.info <> excluded.info
