-- Returns the versions after the first $3 of each chart that have no row in files, without duplicates.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported, $4 chart_ids
--
-- OFFSET 0 lets each chart be read once.
SELECT chart_id, chart_id || '-' || version AS files_id, has_digest
FROM (
    SELECT c.chart_id, e.at, e.entry ->> 'version' AS version, coalesce(e.entry ->> 'digest', '') <> '' AS has_digest,
        row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
    FROM (SELECT chart_id, info -> 'chartVersions' AS versions FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = ANY($4::text[]) OFFSET 0) AS c
    CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.versions) WHEN 'array' THEN c.versions ELSE '[]' END)
        WITH ORDINALITY AS e (entry, at)
    WHERE e.entry ->> 'version' <> ''
) AS entries
WHERE nth = 1 AND at > $3
    AND NOT EXISTS (SELECT 1 FROM files f
        WHERE f.repo_namespace = $1 AND f.chart_files_id = entries.chart_id || '-' || entries.version)
