//! Export and import of all rows as JSON lines, to back up and to move between SQLite and Postgres.
//!
//! ```text
//!  {"header":{…}}                          versions of the format and of the schema
//!  {"table":{"name":…,"columns":[…]}}      for each table, then its rows
//!  {"chunk":"…"}                           a part of a long value of the next row
//!  {"row":[…]}
//!  {"sequence":{"table":…,"value":…}}      the last ID of a table
//!  {"end":{"rows":…,"sha256":…}}           digest of all lines before: a file that was cut or edited is refused
//! ```
//!
//! IDs are kept, because records and digests refer to them. The claims of clusters, fences of leaders and tombstones of
//! deleted repositories belong to a database in use and are not exported; sizes are counted again, because the engines
//! store values differently.

mod export;
mod import;
mod lines;
mod tables;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use import::ImportMode;

const FORMAT: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    pub repositories: u64,
    pub rows: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ExportLine {
    Header(Header),
    Table(TableHeader),
    Chunk(String),
    Row(Vec<Value>),
    Sequence(Sequence),
    End(End),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: u32,
    schema: i64,
    portolan: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TableHeader {
    name: String,
    columns: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sequence {
    table: String,
    value: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    rows: u64,
    sha256: String,
}
