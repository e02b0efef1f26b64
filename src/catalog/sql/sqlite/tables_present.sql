-- Returns which tables exist: Kubeapps' three, the record of Portolan's migrations, all of Portolan's own, and its index on files.
SELECT
    count(CASE WHEN name IN ('repos', 'charts', 'files') THEN 1 END) = 3 AS kubeapps,
    count(CASE WHEN name = 'portolan_migrations' THEN 1 END) = 1 AS migrations,
    count(CASE WHEN name IN ('portolan_repositories', 'portolan_syncs', 'portolan_files', 'portolan_icons',
        'portolan_kept_versions', 'portolan_index_cache', 'portolan_chart_digests',
        'portolan_oci_repositories', 'portolan_oci_tags', 'portolan_stored_bytes', 'portolan_clusters') THEN 1 END) = 11 AS ours,
    count(CASE WHEN name = 'portolan_files_content' THEN 1 END) = 1 AS "index"
FROM sqlite_master
