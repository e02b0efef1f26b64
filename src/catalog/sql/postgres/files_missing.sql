-- Selects the versions whose files can be fetched now: the newest of each chart first, then the others chart by chart,
-- because writing them reads the chart; last those that only lack Chart.yaml.
-- Always returns a row. If no files are missing now, it has the time of the next try and NULL in the other columns.
-- $1 namespace, $2 name, $3 only the newest version of each chart, $4 now in milliseconds since 1970, $5 limit,
-- $6 maximum length of a URL
--
-- versions: the versions of the repository without duplicates.
-- states: the failures of each version's archive, and has_files: false for versions without files, with files of another
-- archive, or with empty ones; true for newest versions that only lack Chart.yaml, because an earlier release or Kubeapps
-- imported them; NULL if nothing is missing. Rows of another chart with the same chart_files_id are ignored.
-- The digest is read from the index portolan_files_content, because the row also contains the README. If the index is missing
-- (dropped, or Kubeapps recreated the table), reading the row is faster.
WITH versions AS MATERIALIZED (
    SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id, url
    FROM (
        SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
            coalesce(e.entry ->> 'digest', '') AS digest, left(e.entry -> 'urls' ->> 0, CAST($6 AS INTEGER)) AS url,
            row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
        FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
            AND e.entry ->> 'version' <> '' AND (NOT $3 OR e.at = 1)
    ) AS entries
    WHERE nth = 1
), states AS MATERIALIZED (
    SELECT v.chart_id, v.at, v.version, v.digest, v.url,
        CASE WHEN p.digest = v.digest THEN p.tries ELSE 0 END AS tries,
        CASE WHEN p.digest = v.digest THEN p.next_try ELSE 0 END AS next_try,
        CASE
            WHEN f.id IS NULL THEN FALSE
            WHEN f.chart_id <> v.chart_id THEN NULL
            WHEN (v.digest = '' AND p.digest IS NOT NULL) OR NOT coalesce(CASE
                WHEN (SELECT to_regclass('portolan_files_content') IS NOT NULL) THEN
                    (SELECT TRUE FROM files m WHERE m.repo_name = $2 AND m.repo_namespace = $1 AND m.chart_id = v.chart_id
                        AND hashtextextended(m.chart_files_id || chr(10) || (m.info ->> 'Digest'), 0)
                            = hashtextextended(v.files_id || chr(10) || v.digest, 0) LIMIT 1)
                ELSE f.info ->> 'Digest' = v.digest END, FALSE) THEN FALSE
            WHEN v.at = 1 AND NOT EXISTS (SELECT 1 FROM portolan_chart_metadata d
                WHERE d.namespace = $1 AND d.name = $2 AND d.chart_id = v.chart_id AND d.chart_files_id = v.files_id
                    AND d.digest = v.digest) THEN TRUE
        END AS has_files
    FROM versions v
    LEFT JOIN files f ON f.repo_namespace = $1 AND f.chart_files_id = v.files_id
    LEFT JOIN portolan_files p ON p.namespace = $1 AND p.name = $2
        AND p.chart_id = v.chart_id AND p.chart_files_id = v.files_id
), missing AS MATERIALIZED (
    SELECT * FROM states WHERE has_files IS NOT NULL
)
SELECT n.next_try, w.chart_id, w.version, w.digest, w.url, w.tries
FROM (SELECT min(next_try) AS next_try FROM missing WHERE next_try > $4) AS n
LEFT JOIN (SELECT * FROM missing WHERE next_try <= $4 ORDER BY has_files, at > 1, chart_id, at LIMIT $5) AS w ON TRUE
ORDER BY w.has_files, w.at > 1, w.chart_id, w.at
