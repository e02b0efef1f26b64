-- Selects the versions that still have the same digest (of duplicate versions the first counts), by their position from 1:
-- the repo of the chart row, and the size of the stored files with Chart.yaml.
-- $1 namespace, $2 name, $3 list of chart_id, version and digest
--
-- stored: the charts, each read once.
-- entries: the digest is that of the row with the lowest position.
WITH wanted AS MATERIALIZED (
    SELECT value ->> 0 AS chart_id, value ->> 1 AS version, value ->> 2 AS digest, key + 1 AS at FROM json_each($3)
), stored AS MATERIALIZED (
    SELECT c.chart_id, c.info -> '$.repo' AS repo, c.info -> '$.chartVersions' AS versions FROM charts c
    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IN (SELECT w.chart_id FROM wanted w)
), entries AS MATERIALIZED (
    SELECT w.at, w.digest = coalesce(e.value ->> 'digest', '') AS is_current, min(e.key)
    FROM stored s CROSS JOIN json_each(s.versions) AS e
    JOIN wanted w ON w.chart_id = s.chart_id AND w.version = e.value ->> 'version'
    GROUP BY w.at
)
SELECT w.at, s.repo, coalesce(octet_length(f.info), 0) + coalesce(octet_length(d.metadata), 0)
FROM entries e JOIN wanted w ON w.at = e.at JOIN stored s ON s.chart_id = w.chart_id
LEFT JOIN files f ON f.repo_namespace = $1 AND f.chart_files_id = w.chart_id || '-' || w.version
LEFT JOIN portolan_chart_metadata d ON d.namespace = $1 AND d.name = $2
    AND d.chart_id = f.chart_id AND d.chart_files_id = f.chart_files_id
WHERE e.is_current
