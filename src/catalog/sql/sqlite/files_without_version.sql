-- Selects the IDs and sizes of files whose version is not among those of their chart. Files of a chart that lists no
-- versions stay: its row does not have Kubeapps' format.
-- $1 namespace, $2 name, $3 limit
WITH versions AS MATERIALIZED (
    SELECT DISTINCT chart_id, chart_id || '-' || version AS files_id
    FROM (
        SELECT c.chart_id, CASE e.type WHEN 'object' THEN e.value ->> 'version' END AS version
        FROM charts c, json_each(c.info, '$.chartVersions') AS e
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
    ) AS entries
    WHERE version <> ''
)
SELECT f.id, octet_length(f.info) FROM files f
WHERE f.repo_namespace = $1 AND f.repo_name = $2
    AND f.chart_id IN (SELECT chart_id FROM versions)
    AND (f.chart_id, f.chart_files_id) NOT IN (SELECT chart_id, files_id FROM versions)
ORDER BY f.id LIMIT $3
