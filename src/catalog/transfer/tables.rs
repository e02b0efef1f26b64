#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Sqlite,
    Postgres,
}

/// The type of a column, by its form in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    Text,
    Integer,
    Boolean,
    /// JSON as text: `jsonb` on Postgres.
    Json,
}

/// A table, in an order in which no table refers to a later table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, ColumnType)],
    /// The number of leading columns that are the primary key.
    pub(super) key: usize,
    /// The first column is generated.
    pub(super) has_sequence: bool,
    /// The migration that creates the table.
    pub(super) since: i64,
}

use ColumnType::{Boolean, Integer, Json, Text};

const fn serial(name: &'static str, columns: &'static [(&'static str, ColumnType)]) -> Table {
    Table {
        name,
        columns,
        key: 1,
        has_sequence: true,
        since: 1,
    }
}

const fn keyed(name: &'static str, key: usize, columns: &'static [(&'static str, ColumnType)]) -> Table {
    Table {
        name,
        columns,
        key,
        has_sequence: false,
        since: 1,
    }
}

/// Our tables that are not moved, and why is in the documentation of the module.
#[cfg(test)]
pub(super) const NOT_MOVED: [&str; 4] = [
    "portolan_clusters",
    "portolan_fences",
    "portolan_tombstones",
    "portolan_stored_bytes",
];

pub(super) const TABLES: &[Table] = &[
    serial(
        "repos",
        &[
            ("id", Integer),
            ("namespace", Text),
            ("name", Text),
            ("checksum", Text),
            ("last_update", Text),
        ],
    ),
    serial(
        "charts",
        &[
            ("id", Integer),
            ("repo_name", Text),
            ("repo_namespace", Text),
            ("chart_id", Text),
            ("info", Json),
        ],
    ),
    serial(
        "files",
        &[
            ("id", Integer),
            ("chart_id", Text),
            ("repo_name", Text),
            ("repo_namespace", Text),
            ("chart_files_id", Text),
            ("info", Json),
        ],
    ),
    keyed(
        "portolan_repositories",
        2,
        &[
            ("namespace", Text),
            ("name", Text),
            ("uid", Text),
            ("origin", Text),
            ("url", Text),
            ("kind", Text),
            ("change_key", Text),
            ("etag", Text),
            ("last_modified", Text),
            ("credentials", Text),
            ("index_digest", Text),
            ("ready", Boolean),
            ("last_attempt", Text),
            ("last_success", Text),
            ("spec_hash", Text),
            ("generation", Integer),
            ("details", Text),
            ("repos_id", Integer),
            ("repos_checksum", Text),
            ("repos_last_update", Text),
            ("revision", Integer),
        ],
    ),
    serial(
        "portolan_syncs",
        &[
            ("id", Integer),
            ("namespace", Text),
            ("name", Text),
            ("started_at", Text),
            ("duration_ms", Integer),
            ("result", Text),
            ("reason", Text),
            ("message", Text),
            ("digest", Text),
            ("charts", Integer),
            ("versions", Integer),
            ("added", Integer),
            ("changed", Integer),
            ("removed", Integer),
            ("skipped", Integer),
        ],
    ),
    keyed(
        "portolan_files",
        4,
        &[
            ("namespace", Text),
            ("name", Text),
            ("chart_id", Text),
            ("chart_files_id", Text),
            ("digest", Text),
            ("tries", Integer),
            ("next_try", Integer),
            ("message", Text),
        ],
    ),
    Table {
        since: 5,
        ..keyed(
            "portolan_chart_metadata",
            4,
            &[
                ("namespace", Text),
                ("name", Text),
                ("chart_id", Text),
                ("chart_files_id", Text),
                ("digest", Text),
                ("metadata", Text),
            ],
        )
    },
    keyed(
        "portolan_icons",
        3,
        &[
            ("namespace", Text),
            ("name", Text),
            ("chart_id", Text),
            ("url", Text),
            ("tries", Integer),
            ("next_try", Integer),
            ("message", Text),
        ],
    ),
    Table {
        since: 6,
        ..keyed(
            "portolan_svg_icons",
            3,
            &[
                ("namespace", Text),
                ("name", Text),
                ("chart_id", Text),
                ("url", Text),
                ("svg", Text),
            ],
        )
    },
    keyed(
        "portolan_kept_versions",
        4,
        &[
            ("namespace", Text),
            ("name", Text),
            ("chart_id", Text),
            ("version", Text),
            ("missing_since", Integer),
            ("expires", Integer),
        ],
    ),
    keyed(
        "portolan_index_cache",
        2,
        &[
            ("namespace", Text),
            ("name", Text),
            ("cache_key", Text),
            ("digest_key", Text),
        ],
    ),
    keyed(
        "portolan_chart_digests",
        3,
        &[
            ("namespace", Text),
            ("name", Text),
            ("key", Text),
            ("digest", Text),
            ("stats", Text),
            ("chart_id", Text),
            ("row_id", Integer),
        ],
    ),
    Table {
        since: 7,
        ..keyed(
            "portolan_deprecated_charts",
            3,
            &[("namespace", Text), ("name", Text), ("chart_id", Text), ("info", Text)],
        )
    },
    keyed(
        "portolan_oci_repositories",
        3,
        &[
            ("namespace", Text),
            ("name", Text),
            ("repository", Text),
            ("source", Text),
            ("etag", Text),
            ("last_modified", Text),
            ("digests_checked", Text),
        ],
    ),
    keyed(
        "portolan_oci_tags",
        4,
        &[
            ("namespace", Text),
            ("name", Text),
            ("repository", Text),
            ("tag", Text),
            ("digest", Text),
            ("metadata", Text),
            ("problem", Text),
            ("tries", Integer),
            ("next_try", Text),
        ],
    ),
    Table {
        since: 8,
        ..keyed(
            "portolan_news",
            2,
            &[
                ("sink", Text),
                ("id", Text),
                ("origin", Text),
                ("namespace", Text),
                ("name", Text),
                ("event", Text),
                ("created", Integer),
                ("tries", Integer),
                ("next_try", Integer),
            ],
        )
    },
];

pub(super) fn find(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

impl Table {
    /// Returns the statement for the next rows, each as a JSON array. Its parameters are the key of the last row.
    pub(super) fn select(&self, on: On, is_first: bool, limit: u32) -> String {
        let on_sqlite = on == On::Sqlite;
        let columns: Vec<String> = self.columns.iter().map(|column| exported(*column, on_sqlite)).collect();
        let array = if on_sqlite {
            format!("json_array({})", columns.join(", "))
        } else {
            format!("CAST(json_build_array({}) AS TEXT)", columns.join(", "))
        };
        let key: Vec<&str> = self.columns[..self.key].iter().map(|(name, _)| *name).collect();
        let key = key.join(", ");
        let parameters: Vec<String> = (1..=self.key).map(|at| format!("${at}")).collect();
        let after = if is_first {
            String::new()
        } else {
            format!("WHERE ({key}) > ({})", parameters.join(", "))
        };
        format!("SELECT {array} FROM {} {after} ORDER BY {key} LIMIT {limit}", self.name)
    }

    /// Returns the statement that inserts rows with these columns from a JSON array of arrays.
    pub(super) fn insert(&self, on: On, columns: &[(&'static str, ColumnType)]) -> String {
        let on_sqlite = on == On::Sqlite;
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let values = columns.iter().enumerate();
        let values: Vec<String> = values
            .map(|(at, (_, column))| imported(at, *column, on_sqlite))
            .collect();
        let source = if on_sqlite {
            "json_each($1)"
        } else {
            "json_array_elements(CAST($1 AS json)) AS each (value)"
        };
        let (name, names, values) = (self.name, names.join(", "), values.join(", "));
        format!("INSERT INTO {name} ({names}) SELECT {values} FROM {source}")
    }
}

fn exported((name, column): (&str, ColumnType), on_sqlite: bool) -> String {
    match (column, on_sqlite) {
        // SQLite stores booleans as numbers, and JSON as text.
        (ColumnType::Boolean, true) => {
            format!("json(CASE {name} WHEN 0 THEN 'false' WHEN 1 THEN 'true' ELSE 'null' END)")
        }
        (ColumnType::Json, false) => format!("CAST({name} AS TEXT)"),
        _ => name.to_owned(),
    }
}

fn imported(at: usize, column: ColumnType, on_sqlite: bool) -> String {
    let value = format!("value ->> {at}");
    match (column, on_sqlite) {
        (_, true) | (ColumnType::Text, false) => value,
        (ColumnType::Integer, false) => format!("CAST({value} AS BIGINT)"),
        (ColumnType::Boolean, false) => format!("CAST({value} AS BOOLEAN)"),
        (ColumnType::Json, false) => format!("CAST({value} AS jsonb)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::schema::{newest_version, our_tables};

    #[test]
    fn each_of_our_tables_is_moved_or_excepted() {
        for table in our_tables() {
            let is_moved = find(table).is_some();
            assert!(is_moved != NOT_MOVED.contains(&table), "{table}");
        }
        assert!(TABLES.iter().all(|table| table.since <= newest_version()));
    }

    #[test]
    fn statements_differ_by_engine() {
        let table = keyed("t", 1, &[("a", Text), ("b", Boolean), ("c", Json)]);
        assert_eq!(
            table.select(On::Postgres, false, 5),
            "SELECT CAST(json_build_array(a, b, CAST(c AS TEXT)) AS TEXT) FROM t WHERE (a) > ($1) ORDER BY a LIMIT 5"
        );
        assert!(
            table
                .select(On::Sqlite, true, 5)
                .ends_with("c) FROM t  ORDER BY a LIMIT 5")
        );
        assert_eq!(
            table.insert(On::Sqlite, table.columns),
            "INSERT INTO t (a, b, c) SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1)"
        );
        assert!(
            table
                .insert(On::Postgres, table.columns)
                .contains("CAST(value ->> 2 AS jsonb)")
        );
    }
}
