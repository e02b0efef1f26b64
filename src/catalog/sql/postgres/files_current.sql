-- Selects the versions that still have the same digest (of duplicate versions the first counts), by their position from 1:
-- the repo of the chart row, and the size of the stored files with Chart.yaml.
-- $1 namespace, $2 name, $3 chart_ids, $4 versions, $5 digests
--
-- stored: the charts, each read once.
WITH wanted AS MATERIALIZED (
    SELECT chart_id, version, digest, at FROM unnest($3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS w (chart_id, version, digest, at)
), stored AS MATERIALIZED (
    SELECT c.chart_id, c.info -> 'repo' AS repo, c.info -> 'chartVersions' AS versions FROM charts c
    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IN (SELECT w.chart_id FROM wanted w)
), entries AS MATERIALIZED (
    SELECT DISTINCT ON (w.at) w.at, w.digest = coalesce(e.entry ->> 'digest', '') AS is_current
    FROM stored s CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(s.versions)
        WHEN 'array' THEN s.versions ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
    JOIN wanted w ON w.chart_id = s.chart_id AND w.version = e.entry ->> 'version'
    ORDER BY w.at, e.at
)
SELECT w.at, CAST(s.repo AS TEXT),
    coalesce(CAST(pg_column_size(f.info) AS BIGINT), 0) + coalesce(CAST(pg_column_size(d.metadata) AS BIGINT), 0)
FROM entries e JOIN wanted w ON w.at = e.at JOIN stored s ON s.chart_id = w.chart_id
LEFT JOIN files f ON f.repo_namespace = $1 AND f.chart_files_id = w.chart_id || '-' || w.version
LEFT JOIN portolan_chart_metadata d ON d.namespace = $1 AND d.name = $2
    AND d.chart_id = f.chart_id AND d.chart_files_id = f.chart_files_id
WHERE e.is_current
