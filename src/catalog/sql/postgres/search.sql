-- Finds charts. Those whose name matches all words come first, by the length of the name.
-- $1 patterns, $2 namespace, $3 name of the repository, $4 limit, $5 offset
SELECT repo_namespace, repo_name, coalesce(info ->> 'name', chart_id, '') AS chart,
    coalesce(info -> 'chartVersions' -> 0 ->> 'version', '') AS version,
    coalesce(info -> 'chartVersions' -> 0 ->> 'app_version', '') AS app_version,
    coalesce(info ->> 'description', '') AS description
FROM charts
WHERE ($2::text IS NULL OR repo_namespace = $2) AND ($3::text IS NULL OR repo_name = $3)
    AND NOT EXISTS (SELECT FROM jsonb_array_elements_text($1) AS word (pattern) WHERE NOT (
        coalesce(info ->> 'name', '') ILIKE word.pattern
        OR coalesce(info ->> 'description', '') ILIKE word.pattern
        OR coalesce(info ->> 'keywords', '') ILIKE word.pattern))
ORDER BY CASE WHEN jsonb_array_length($1) > 0 AND NOT EXISTS (SELECT FROM jsonb_array_elements_text($1) AS word (pattern)
        WHERE NOT coalesce(info ->> 'name', '') ILIKE word.pattern) THEN length(info ->> 'name') END NULLS LAST,
    chart, repo_namespace, repo_name
LIMIT $4 OFFSET $5
