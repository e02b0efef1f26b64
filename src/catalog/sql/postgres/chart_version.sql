-- Selects the repo of a chart row, the digest of a version (of duplicate versions the first), and the size of its files.
-- $1 namespace, $2 name, $3 chart_id, $4 version
SELECT CAST(c.info -> 'repo' AS TEXT), (
    SELECT coalesce(e.entry ->> 'digest', '')
    FROM jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
        WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
    WHERE e.entry ->> 'version' = $4 ORDER BY e.at LIMIT 1),
    coalesce((SELECT CAST(pg_column_size(f.info) AS BIGINT) FROM files f
        WHERE f.repo_namespace = $1 AND f.chart_files_id = $3 || '-' || $4), 0)
FROM charts c
WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = $3
