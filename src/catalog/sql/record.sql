-- Selects the record of one repository. $1 namespace, $2 name
--
-- trusted: Kubeapps' row of the repository has the values that Portolan wrote last. A row of the same id that another process
-- wrote has another time of writing.
SELECT p.namespace, p.name, p.uid, p.origin, p.url, p.kind, p.change_key, p.etag, p.last_modified, p.credentials, p.index_digest,
    p.ready, p.last_attempt, p.last_success, p.spec_hash, p.generation, p.details, p.revision,
    coalesce(r.id = p.repos_id AND r.checksum = p.repos_checksum AND r.last_update = p.repos_last_update, FALSE) AS trusted,
    (SELECT count(*) FROM charts c WHERE c.repo_name = p.name AND c.repo_namespace = p.namespace) AS charts
FROM portolan_repositories p LEFT JOIN repos r ON r.namespace = p.namespace AND r.name = p.name
WHERE p.namespace = $1 AND p.name = $2
