//! The migrations of our own tables, in order. Never edit a released migration: the database records its checksum.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::catalog::engine::Transaction;

pub(super) const MIGRATIONS_TABLE: &str = "portolan_migrations";

#[derive(Clone, Copy, Debug)]
pub(super) struct MigrationStep {
    pub(super) version: i64,
    pub(super) name: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
    /// The tables that the migration creates, in an order in which no table refers to a later table.
    pub(super) tables: &'static [&'static str],
}

macro_rules! step {
    ($version:literal, $name:literal, $file:literal, [$($table:literal),* $(,)?]) => {
        MigrationStep {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/", $file)),
            postgres: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres/", $file)),
            tables: &[$($table),*],
        }
    };
}

/// All migrations. A new migration is a file in each directory of `migrations/` and a line here.
pub(super) const STEPS: &[MigrationStep] = &[
    step!(
        1,
        "init",
        "0001_init.sql",
        [
            "portolan_repositories",
            "portolan_syncs",
            "portolan_files",
            "portolan_icons",
            "portolan_kept_versions",
            "portolan_index_cache",
            "portolan_chart_digests",
            "portolan_oci_repositories",
            "portolan_oci_tags",
            "portolan_stored_bytes",
            "portolan_clusters",
        ]
    ),
    step!(2, "fences", "0002_fences.sql", ["portolan_fences"]),
    step!(4, "tombstones", "0004_tombstones.sql", ["portolan_tombstones"]),
    step!(
        5,
        "chart_metadata",
        "0005_chart_metadata.sql",
        ["portolan_chart_metadata"]
    ),
    step!(6, "svg_icons", "0006_svg_icons.sql", ["portolan_svg_icons"]),
    step!(
        7,
        "deprecated_charts",
        "0007_deprecated_charts.sql",
        ["portolan_deprecated_charts"]
    ),
];

impl MigrationStep {
    pub(super) fn migration(&self, tx: &Transaction) -> Migration {
        let sql = tx.choose(self.sqlite, self.postgres);
        Migration::new(
            self.version,
            self.name.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    }
}

pub(super) fn migrator(steps: &[MigrationStep], tx: &Transaction) -> Migrator {
    let mut migrator = Migrator::with_migrations(steps.iter().map(|step| step.migration(tx)).collect());
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    // Our own lock ends with the transaction. The migrator's lock would stay with the pooled connection if a migration fails.
    migrator.set_locking(false);
    migrator
}

/// Returns the version of the last migration; 0 without any.
pub(super) fn newest(steps: &[MigrationStep]) -> i64 {
    steps.iter().map(|step| step.version).max().unwrap_or_default()
}

/// Returns the tables of all migrations in the order of their creation.
pub(super) fn tables(steps: &[MigrationStep]) -> Vec<&'static str> {
    steps.iter().flat_map(|step| step.tables).copied().collect()
}

pub(super) fn drop_statements(steps: &[MigrationStep]) -> String {
    let tables = tables(steps).into_iter().rev().chain([MIGRATIONS_TABLE]);
    tables.map(|table| format!("DROP TABLE IF EXISTS {table}; ")).collect()
}
