-- Inserts empty files for the versions after the first $3 of each chart that have no row, because Kubeapps' reader fails without one.
-- Returns the size of each.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported, $4 list of chart_ids
--
-- A longer ID may not fit into Postgres' index.
-- versions: the versions of the charts without duplicates.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id, repo
    FROM (
        SELECT c.chart_id, e.key + 1 AS at, e.value ->> 'version' AS version,
            coalesce(e.value ->> 'digest', '') AS digest, c.info -> 'repo' AS repo,
            row_number() OVER (PARTITION BY c.chart_id, e.value ->> 'version' ORDER BY e.key) AS nth
        FROM charts c, json_each(c.info, '$.chartVersions') AS e
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IN (SELECT value FROM json_each($4))
            AND e.value ->> 'version' <> ''
    ) AS entries
    WHERE nth = 1
)
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT v.chart_id, $2, $1, v.files_id, json_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', json('{}'), 'Schema', '',
    'Repo', json(v.repo), 'Digest', '')
FROM versions v
WHERE v.at > $3 AND octet_length(v.files_id) <= 1000
    AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)
ON CONFLICT DO NOTHING
RETURNING octet_length(info)
