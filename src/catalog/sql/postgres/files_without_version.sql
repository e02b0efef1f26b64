-- Selects the IDs and sizes of files whose version is not among those of their chart. Files of a chart that lists no
-- versions stay: its row does not have Kubeapps' format.
-- $1 namespace, $2 name, $3 limit
WITH versions AS MATERIALIZED (
    SELECT DISTINCT c.chart_id, c.chart_id || '-' || (e.entry ->> 'version') AS files_id
    FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
        WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) AS e (entry)
    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL AND e.entry ->> 'version' <> ''
)
SELECT CAST(f.id AS BIGINT), CAST(pg_column_size(f.info) AS BIGINT)
FROM files f LEFT JOIN versions v ON v.chart_id = f.chart_id AND v.files_id = f.chart_files_id
WHERE f.repo_namespace = $1 AND f.repo_name = $2 AND v.chart_id IS NULL
    AND f.chart_id IN (SELECT chart_id FROM versions)
ORDER BY f.id LIMIT $3
