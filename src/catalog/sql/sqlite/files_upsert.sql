-- Writes the files of a version. An equal row is not touched, nor one of another chart with the same chart_files_id
-- (`a` of version `1-2.0.0`, `a-1` of version `2.0.0`).
-- $1 namespace, $2 name, $3 chart_id, $4 chart_files_id, $5 info
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info) VALUES ($3, $2, $1, $4, $5)
ON CONFLICT (repo_namespace, chart_files_id) DO UPDATE SET info = excluded.info
    WHERE files.chart_id = excluded.chart_id AND files.info <> excluded.info
