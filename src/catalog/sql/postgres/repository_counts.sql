-- Counts the charts and versions of each repository, with the URL of its charts.
SELECT r.namespace, r.name, count(c.id) AS charts,
    coalesce(sum(CASE jsonb_typeof(c.info -> 'chartVersions')
        WHEN 'array' THEN jsonb_array_length(c.info -> 'chartVersions') ELSE 0 END), 0) AS versions,
    coalesce(max(c.info -> 'repo' ->> 'url'), '') AS url
FROM repos r LEFT JOIN charts c ON c.repo_name = r.name AND c.repo_namespace = r.namespace
GROUP BY r.namespace, r.name
