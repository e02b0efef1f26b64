-- Inserts empty files for the versions after the first $3 of each chart that have no row, because Kubeapps' reader fails without one.
-- Returns the size of each.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported, $4 chart_ids
--
-- A longer ID may not fit into Postgres' index.
-- versions: the versions of the charts without duplicates. OFFSET 0 lets each chart be read once.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id, repo
    FROM (
        SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
            coalesce(e.entry ->> 'digest', '') AS digest, c.repo,
            row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
        FROM (SELECT chart_id, info -> 'repo' AS repo, info -> 'chartVersions' AS versions FROM charts
            WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = ANY($4::text[]) OFFSET 0) AS c
        CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.versions) WHEN 'array' THEN c.versions ELSE '[]' END)
            WITH ORDINALITY AS e (entry, at)
        WHERE e.entry ->> 'version' <> ''
    ) AS entries
    WHERE nth = 1
)
INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
SELECT v.chart_id, $2, $1, v.files_id, jsonb_build_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '',
    'AdditionalDefaultValues', '{}'::jsonb, 'Schema', '',
    'Repo', v.repo, 'Digest', '')
FROM versions v
WHERE v.at > $3 AND octet_length(v.files_id) <= 1000
    AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)
ON CONFLICT DO NOTHING
RETURNING CAST(pg_column_size(info) AS BIGINT)
