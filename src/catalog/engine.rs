//! Statements for SQLite and Postgres.
//!
//! The common type of the driver (`Any`) can bind neither JSON nor arrays. Both drivers accept `$1` and share most SQL,
//! so most statements are written once and compiled for each engine by [`on_engine!`], [`execute!`] and [`select!`].
//! Long statements that differ are files in `sql/`.

pub(super) use super::connection::{Connection, Transaction};

#[derive(Clone, Debug)]
pub(super) enum Engine<S, P> {
    Sqlite(S),
    Postgres(P),
}

macro_rules! on_engine {
    ($engine:expr, $bound:ident => $body:expr) => {
        match $engine {
            $crate::catalog::engine::Engine::Sqlite($bound) => $body,
            $crate::catalog::engine::Engine::Postgres($bound) => $body,
        }
    };
}
pub(super) use on_engine;

/// Runs a statement with the namespace, the name and further values. Returns the number of affected rows.
macro_rules! execute {
    ($source:expr, $statement:expr, $name:expr $(, $value:expr)* $(,)?) => {
        $crate::catalog::engine::on_engine!($source.executor(), executor => sqlx::query($statement)
            .bind(&$name.namespace)
            .bind(&$name.name)
            $(.bind($value))*
            .execute(executor)
            .await?
            .rows_affected())
    };
}
pub(super) use execute;

/// Runs a statement with the namespace, the name, further values and a list: JSON for SQLite, an array for Postgres.
macro_rules! execute_list {
    ($tx:expr, $sqlite:expr, $postgres:expr, $name:expr $(, $value:expr)*; $list:expr) => {
        match $tx.executor() {
            $crate::catalog::engine::Engine::Sqlite(connection) => sqlx::query($sqlite)
                .bind(&$name.namespace)
                .bind(&$name.name)
                $(.bind($value))*
                .bind(sqlx::types::Json($list))
                .execute(connection)
                .await
                .map(drop)?,
            $crate::catalog::engine::Engine::Postgres(connection) => sqlx::query($postgres)
                .bind(&$name.namespace)
                .bind(&$name.name)
                $(.bind($value))*
                .bind($list)
                .execute(connection)
                .await
                .map(drop)?,
        }
    };
}
pub(super) use execute_list;

/// Selects rows for the namespace, the name and further values by a method such as `fetch_all`.
macro_rules! select {
    ($method:ident, $source:expr, $statement:expr, $name:expr $(, $value:expr)* $(,)?) => {
        $crate::catalog::engine::on_engine!($source.executor(), executor => sqlx::query_as($statement)
            .bind(&$name.namespace)
            .bind(&$name.name)
            $(.bind($value))*
            .$method(executor)
            .await?)
    };
}
pub(super) use select;

/// Includes a statement from `sql/sqlite/` or `sql/postgres/`. The file documents its parameters.
macro_rules! sql {
    ($engine:expr, $file:literal) => {
        $engine.choose(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/sqlite/", $file)),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/postgres/", $file)),
        )
    };
}
pub(super) use sql;

impl<S, P> Engine<S, P> {
    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        match self {
            Self::Sqlite(_) => sqlite,
            Self::Postgres(_) => postgres,
        }
    }
}
