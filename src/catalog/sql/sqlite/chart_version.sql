-- Selects the repo of a chart row, the digest of a version (of duplicate versions the first), and the size of its files.
-- $1 namespace, $2 name, $3 chart_id, $4 version
SELECT c.info -> 'repo', (
    SELECT coalesce(e.value ->> 'digest', '')
    FROM json_each(c.info, '$.chartVersions') AS e
    WHERE e.value ->> 'version' = $4 ORDER BY e.key LIMIT 1),
    coalesce((SELECT octet_length(f.info) FROM files f
        WHERE f.repo_namespace = $1 AND f.chart_files_id = $3 || '-' || $4), 0)
FROM charts c
WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = $3
