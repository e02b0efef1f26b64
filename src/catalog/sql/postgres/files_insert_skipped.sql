-- Inserts empty files for versions that have no row, because Kubeapps' reader fails without one. Returns the size of each.
-- $1 namespace, $2 name, $3 chart_ids, $4 chart_files_ids, $5 repository
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT row.chart_id, $2, $1, row.files_id, jsonb_build_object('ID', row.files_id, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', '{}'::jsonb, 'Schema', '', 'Repo', $5::jsonb, 'Digest', '')
FROM unnest($3::text[], $4::text[]) AS row (chart_id, files_id)
ON CONFLICT DO NOTHING
RETURNING CAST(pg_column_size(info) AS BIGINT)
