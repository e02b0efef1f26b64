-- Writes the files of versions. An equal row is not touched, nor one of another chart with the same chart_files_id
-- (`a` of version `1-2.0.0`, `a-1` of version `2.0.0`).
-- $1 namespace, $2 name, $3 chart_ids, $4 chart_files_ids, $5 infos
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT row.chart_id, $2, $1, row.files_id, row.info::jsonb
FROM unnest($3::text[], $4::text[], $5::text[]) AS row (chart_id, files_id, info)
ON CONFLICT (repo_namespace, chart_files_id) DO UPDATE SET info = excluded.info
    WHERE files.chart_id = excluded.chart_id AND files.info <> excluded.info
