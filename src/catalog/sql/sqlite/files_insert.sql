-- Writes the files of a version that has none.
-- $1 namespace, $2 name, $3 chart_id, $4 chart_files_id, $5 info
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info) VALUES ($3, $2, $1, $4, $5)
ON CONFLICT (repo_namespace, chart_files_id) DO NOTHING
