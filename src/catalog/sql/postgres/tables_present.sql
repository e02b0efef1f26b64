-- Returns which tables exist: Kubeapps' three, the record of Portolan's migrations, all of Portolan's own, and its index on files.
-- They are found by the search path, as by a statement that names no schema.
-- $1: the names of Portolan's own
SELECT
    num_nulls(to_regclass('repos'), to_regclass('charts'), to_regclass('files')) = 0 AS kubeapps,
    to_regclass('portolan_migrations') IS NOT NULL AS migrations,
    (SELECT bool_and(to_regclass(own) IS NOT NULL) FROM unnest($1::text[]) AS own) AS ours,
    to_regclass('portolan_files_content') IS NOT NULL AS "index"
