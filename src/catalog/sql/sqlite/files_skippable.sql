-- Returns the versions after the first $3 of each chart that have no row in files, without duplicates.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported, $4 list of chart_ids
SELECT chart_id, chart_id || '-' || version AS files_id, has_digest
FROM (
    SELECT c.chart_id, e.key + 1 AS at, e.value ->> 'version' AS version,
        coalesce(e.value ->> 'digest', '') <> '' AS has_digest,
        row_number() OVER (PARTITION BY c.chart_id, e.value ->> 'version' ORDER BY e.key) AS nth
    FROM charts c, json_each(c.info, '$.chartVersions') AS e
    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IN (SELECT value FROM json_each($4))
        AND e.value ->> 'version' <> ''
) AS entries
WHERE nth = 1 AND at > $3
    AND NOT EXISTS (SELECT 1 FROM files f
        WHERE f.repo_namespace = $1 AND f.chart_files_id = entries.chart_id || '-' || entries.version)
