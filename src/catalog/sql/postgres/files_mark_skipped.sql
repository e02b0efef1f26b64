-- Marks the versions after the first $3 of each chart that have no digest and no row in files, because the empty rows that
-- they get must differ from those of charts without files.
-- $1 namespace, $2 name, $3 number of versions of each chart that are imported, $4 chart_ids
--
-- versions: the versions of the charts without duplicates.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id
    FROM (
        SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
            coalesce(e.entry ->> 'digest', '') AS digest,
            row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
        FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = ANY($4::text[])
            AND e.entry ->> 'version' <> ''
    ) AS entries
    WHERE nth = 1
)
INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
SELECT $1, $2, v.chart_id, v.files_id, v.digest, 0, 0, ''
FROM versions v
WHERE v.at > $3 AND v.digest = '' AND octet_length(v.files_id) <= 1000
    AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)
ON CONFLICT DO NOTHING
