-- Finds charts. Those whose name matches all words come first, by the length of the name.
-- $1 patterns, $2 namespace, $3 name of the repository, $4 limit, $5 offset
SELECT repo_namespace, repo_name, coalesce(info ->> 'name', chart_id, '') AS chart,
    coalesce(info -> 'chartVersions' -> 0 ->> 'version', '') AS version,
    coalesce(info -> 'chartVersions' -> 0 ->> 'app_version', '') AS app_version,
    coalesce(info ->> 'description', '') AS description
FROM charts
WHERE ($2 IS NULL OR repo_namespace = $2) AND ($3 IS NULL OR repo_name = $3)
    AND NOT EXISTS (SELECT 1 FROM json_each($1) AS word WHERE NOT (
        coalesce(info ->> 'name', '') LIKE word.value ESCAPE '\'
        OR coalesce(info ->> 'description', '') LIKE word.value ESCAPE '\'
        OR coalesce(info ->> 'keywords', '') LIKE word.value ESCAPE '\'))
ORDER BY CASE WHEN json_array_length($1) > 0 AND NOT EXISTS (SELECT 1 FROM json_each($1) AS word
        WHERE NOT coalesce(info ->> 'name', '') LIKE word.value ESCAPE '\') THEN length(info ->> 'name') END NULLS LAST,
    chart, repo_namespace, repo_name
LIMIT $4 OFFSET $5
