-- Returns which tables exist: Kubeapps' three, the record of Portolan's migrations, all of Portolan's own, and its index on files.
-- They are found by the search path, as by a statement that names no schema.
SELECT
    num_nulls(to_regclass('repos'), to_regclass('charts'), to_regclass('files')) = 0 AS kubeapps,
    to_regclass('portolan_migrations') IS NOT NULL AS migrations,
    num_nulls(to_regclass('portolan_repositories'), to_regclass('portolan_syncs'),
        to_regclass('portolan_files'), to_regclass('portolan_icons'), to_regclass('portolan_kept_versions'),
        to_regclass('portolan_index_cache'), to_regclass('portolan_chart_digests'),
        to_regclass('portolan_oci_repositories'), to_regclass('portolan_oci_tags'),
        to_regclass('portolan_stored_bytes'), to_regclass('portolan_clusters')) = 0 AS ours,
    to_regclass('portolan_files_content') IS NOT NULL AS "index"
