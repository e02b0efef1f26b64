-- Returns which tables exist: Kubeapps' three, the record of Portolan's migrations, all of Portolan's own, and its index on files.
-- $1: the names of Portolan's own, as JSON
SELECT
    count(CASE WHEN name IN ('repos', 'charts', 'files') THEN 1 END) = 3 AS kubeapps,
    count(CASE WHEN name = 'portolan_migrations' THEN 1 END) = 1 AS migrations,
    count(CASE WHEN type = 'table' AND name IN (SELECT value FROM json_each($1)) THEN 1 END) = json_array_length($1) AS ours,
    count(CASE WHEN name = 'portolan_files_content' THEN 1 END) = 1 AS "index"
FROM sqlite_master
