-- Counts the versions that should have files, those that have none, and the failed ones among these.
-- $1 namespace, $2 name, $3 only the newest version of each chart, $4 number of tries after which a version counts as failed
--
-- versions: the versions of the repository without duplicates.
-- Versions that only lack Chart.yaml count as imported.
-- missing: versions without files, with files of another archive, or with empty ones; and the failures of this archive.
-- Rows of another chart with the same chart_files_id are ignored.
-- The digest is read from the index portolan_files_content, because the row also contains the README. If the index is missing
-- (dropped, or Kubeapps recreated the table), reading the row is faster.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id
    FROM (
        SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
            coalesce(e.entry ->> 'digest', '') AS digest,
            row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
        FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
            AND e.entry ->> 'version' <> '' AND (NOT $3 OR e.at = 1)
    ) AS entries
    WHERE nth = 1
), missing AS MATERIALIZED (
    SELECT v.chart_id, v.at, v.version, v.digest,
        CASE WHEN p.digest = v.digest THEN p.tries ELSE 0 END AS tries,
        CASE WHEN p.digest = v.digest THEN p.next_try ELSE 0 END AS next_try
    FROM versions v
    LEFT JOIN files f ON f.repo_namespace = $1 AND f.chart_files_id = v.files_id
    LEFT JOIN portolan_files p ON p.namespace = $1 AND p.name = $2
        AND p.chart_id = v.chart_id AND p.chart_files_id = v.files_id
    WHERE f.id IS NULL OR (f.chart_id = v.chart_id
        AND ((v.digest = '' AND p.digest IS NOT NULL) OR NOT coalesce(CASE
            WHEN (SELECT to_regclass('portolan_files_content') IS NOT NULL) THEN
                (SELECT TRUE FROM files m WHERE m.repo_name = $2 AND m.repo_namespace = $1 AND m.chart_id = v.chart_id
                    AND hashtextextended(m.chart_files_id || chr(10) || (m.info ->> 'Digest'), 0)
                        = hashtextextended(v.files_id || chr(10) || v.digest, 0) LIMIT 1)
            ELSE f.info ->> 'Digest' = v.digest END, FALSE)))
)
SELECT (SELECT count(*) FROM versions), (SELECT count(*) FROM missing),
    (SELECT count(*) FROM missing WHERE tries >= $4)
