-- Inserts empty files for the versions after the first $3 of each chart that have no row, because Kubeapps' reader fails without one.
-- Returns the size of each.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported
--
-- versions: the versions of the repository without duplicates.
-- repos: the repo of each chart row, which is read once.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id
    FROM (
        SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
            coalesce(e.entry ->> 'digest', '') AS digest,
            row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
        FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
            AND e.entry ->> 'version' <> ''
    ) AS entries
    WHERE nth = 1
), repos AS MATERIALIZED (
    SELECT c.chart_id, c.info -> 'repo' AS repo FROM charts c WHERE c.repo_namespace = $1 AND c.repo_name = $2
)
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT v.chart_id, $2, $1, v.files_id, jsonb_build_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', '{}'::jsonb, 'Schema', '',
    'Repo', r.repo, 'Digest', '')
FROM versions v JOIN repos r ON r.chart_id = v.chart_id
WHERE v.at > $3
    AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)
ON CONFLICT DO NOTHING
RETURNING CAST(pg_column_size(info) AS BIGINT)
