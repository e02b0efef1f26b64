-- Inserts empty files for versions that have no row, because Kubeapps' reader fails without one. Returns the size of each.
-- $1 namespace, $2 name, $3 list of [chart_id, chart_files_id], $4 repository
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT value ->> 0, $2, $1, value ->> 1, json_object('ID', value ->> 1, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', json('{}'), 'Schema', '', 'Repo', json($4), 'Digest', '')
FROM json_each($3) WHERE true
ON CONFLICT DO NOTHING
RETURNING octet_length(info)
