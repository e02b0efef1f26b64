-- Counts the charts and versions of each repository, with the URL of its charts.
SELECT r.namespace, r.name, count(c.id) AS charts,
    coalesce(sum(json_array_length(c.info, '$.chartVersions')), 0) AS versions,
    coalesce(max(c.info -> 'repo' ->> 'url'), '') AS url
FROM repos r LEFT JOIN charts c ON c.repo_name = r.name AND c.repo_namespace = r.namespace
GROUP BY r.namespace, r.name
