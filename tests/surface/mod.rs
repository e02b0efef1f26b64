//! Snapshots of the user-facing surface: command line, metrics, texts, reasons and tables. Every change shows as a diff here.
//!
//! `UPDATE_EXPECT=1 make test ARGS=surface` updates the files. Review their diff like code.

mod calls;
mod coverage;
mod literals;
mod pages;
mod reasons;
mod tokens;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::{ExpectFile, expect_file};
use sqlx::{PgPool, SqlitePool};

use crate::catalog::{Fixture, On, Tables};
use crate::support::portolan::{command, run};
use literals::{Literal, literals_of_source};

fn assert_snapshot(expected: &ExpectFile, lines: impl IntoIterator<Item = String>) {
    let mut text = String::new();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    expected.assert_eq(&text);
}

/// Shows the layout; the reference of the command line has the texts.
#[tokio::test]
async fn the_help_of_the_program_is_as_recorded() {
    let mut text = String::new();
    for arguments in [&["--help"][..], &["vela", "--help"], &["completion", "--help"]] {
        let mut command = command(arguments);
        command.env("COLUMNS", "120");
        let help = String::from_utf8(run(command).await.stdout).unwrap();
        write!(text, "$ portolan {}\n{help}\n", arguments.join(" ")).unwrap();
    }
    expect_file!["help.txt"].assert_eq(&text);
}

#[test]
fn the_reference_of_the_command_line_is_as_generated() {
    expect_file!["../../docs/reference/command-line.md"].assert_eq(&portolan::cmd::reference::command_line());
}

#[test]
fn the_reference_of_kubevelas_flags_is_as_generated() {
    expect_file!["../../docs/reference/kubevela-flags.md"].assert_eq(&portolan::cmd::reference::kubevela_flags());
}

#[test]
fn metrics_and_their_help_texts_are_as_recorded() {
    let metrics: BTreeSet<String> = literals_of_source()
        .into_iter()
        .filter_map(|literal| match literal {
            Literal::Metric { name, help } => Some(format!("{name}: {help}")),
            Literal::Text(_) => None,
        })
        .collect();
    assert!(metrics.len() > 20, "{metrics:#?}");
    assert_snapshot(&expect_file!["metrics.txt"], metrics);
}

#[test]
fn errors_logs_and_messages_are_as_recorded() {
    assert_snapshot(
        &expect_file!["texts.txt"],
        texts().filter(|text| is_sentence(text)).collect::<BTreeSet<_>>(),
    );
}

#[test]
fn condition_types_reasons_and_kinds_are_as_recorded() {
    let words: BTreeSet<String> = texts().filter(|text| is_camel_case(text)).collect();
    assert!(words.contains("Ready") && words.contains("Stalled"), "{words:#?}");
    assert_snapshot(&expect_file!["identifiers.txt"], words);
}

fn texts() -> impl Iterator<Item = String> {
    literals_of_source().into_iter().filter_map(|literal| match literal {
        Literal::Text(text) => Some(text),
        Literal::Metric { .. } => None,
    })
}

/// Returns true for a text of at least two words that is not a part of an SQL statement.
fn is_sentence(text: &str) -> bool {
    let sql = [
        "SELECT ",
        "INSERT ",
        "UPDATE ",
        "DELETE ",
        "CREATE ",
        "DROP ",
        "FROM ",
        "WHERE ",
        "JOIN ",
        "ON CONFLICT",
        "VALUES ",
        "SET ",
        "BEGIN ",
        "PRAGMA ",
        "WITH ",
    ];
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 1;
    !sql.iter().any(|keyword| text.contains(keyword)) && text.split(' ').filter(is_word).count() > 1
}

fn is_camel_case(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.contains(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[tokio::test]
async fn the_tables_on_sqlite_are_as_recorded() {
    let fixture = Fixture::new(On::Sqlite).await;
    let Tables::Sqlite(pool) = &fixture.tables else {
        unreachable!("opened on SQLite")
    };
    assert_snapshot(&expect_file!["schema-sqlite.txt"], columns_of_sqlite(pool).await);
}

async fn columns_of_sqlite(pool: &SqlitePool) -> Vec<String> {
    let columns =
        "SELECT m.name || '.' || c.name || ' ' || c.type || CASE WHEN c.\"notnull\" THEN ' NOT NULL' ELSE '' END
        || CASE WHEN c.pk > 0 THEN ' PRIMARY KEY ' || c.pk ELSE '' END
        FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'
        ORDER BY m.name, c.cid";
    let indexes =
        "SELECT sql FROM sqlite_master WHERE type IN ('index', 'trigger', 'view') AND sql IS NOT NULL ORDER BY name";
    let mut lines: Vec<String> = sqlx::query_scalar(columns).fetch_all(pool).await.unwrap();
    lines.extend(sqlx::query_scalar::<_, String>(indexes).fetch_all(pool).await.unwrap());
    lines
}

#[tokio::test]
async fn the_tables_on_postgres_are_as_recorded() {
    let fixture = Fixture::new(On::Postgres).await;
    let Tables::Postgres(pool) = &fixture.tables else {
        unreachable!("opened on Postgres")
    };
    assert_snapshot(&expect_file!["schema-postgres.txt"], columns_of_postgres(pool).await);
}

async fn columns_of_postgres(pool: &PgPool) -> Vec<String> {
    let columns = "SELECT table_name || '.' || column_name || ' ' || data_type
        || CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END || coalesce(' DEFAULT ' || column_default, '')
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position";
    let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname";
    let mut lines: Vec<String> = sqlx::query_scalar(columns).fetch_all(pool).await.unwrap();
    lines.extend(sqlx::query_scalar::<_, String>(indexes).fetch_all(pool).await.unwrap());
    lines
}
