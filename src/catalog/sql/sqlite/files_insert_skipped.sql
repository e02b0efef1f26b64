-- Inserts empty files for the versions after the first $3 of each chart that have no row, because Kubeapps' reader fails without one.
-- Returns the size of each.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported
--
-- versions: the versions of the repository without duplicates.
-- repos: the repo of each chart row, which is read once.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id
    FROM (
        SELECT c.chart_id, e.key + 1 AS at, e.value ->> 'version' AS version,
            coalesce(e.value ->> 'digest', '') AS digest,
            row_number() OVER (PARTITION BY c.chart_id, e.value ->> 'version' ORDER BY e.key) AS nth
        FROM charts c, json_each(c.info, '$.chartVersions') AS e
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
            AND e.value ->> 'version' <> ''
    ) AS entries
    WHERE nth = 1
), repos AS MATERIALIZED (
    SELECT c.chart_id, c.info -> 'repo' AS repo FROM charts c WHERE c.repo_namespace = $1 AND c.repo_name = $2
)
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT v.chart_id, $2, $1, v.files_id, json_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', json('{}'), 'Schema', '',
    'Repo', json(r.repo), 'Digest', '')
FROM versions v JOIN repos r ON r.chart_id = v.chart_id
WHERE v.at > $3
    AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)
ON CONFLICT DO NOTHING
RETURNING octet_length(info)
