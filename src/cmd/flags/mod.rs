//! Flags that several commands share.

pub mod cluster;
pub mod credentials;
pub mod database;
pub mod declared;
pub mod deprecated;
pub mod fetch;
pub mod jobs;
pub mod joined;
pub mod leader;
pub mod parse;
pub mod program_name;
pub mod resources;
pub mod serve;
pub mod traces;
pub mod vela;

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logging")]
pub struct LogFlags {
    /// Format of log lines
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Log filter: error, warn, info, debug, trace, or a list such as info,portolan::http=debug (default: $RUST_LOG or
    /// info)
    #[arg(long, global = true, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Same as --log-level=debug
    #[arg(long, global = true)]
    pub debug: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event
    #[default]
    Text,
    /// One JSON object per event
    Json,
}

/// The flags of commands that show objects.
#[derive(Args, Clone, Debug)]
pub struct QueryFlags {
    /// Namespace to show (default: all namespaces)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: OutputFormat,
}

impl QueryFlags {
    pub fn namespace(&self) -> Option<&str> {
        non_empty(self.namespace.as_deref())
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Human-readable table
    #[default]
    Table,
    /// One JSON document
    Json,
}

/// Returns the value of a flag. Empty values count as not set, as with Go's flags.
pub fn non_empty(flag: Option<&str>) -> Option<&str> {
    flag.map(str::trim).filter(|text| !text.is_empty())
}

pub fn count(number: NonZeroU32) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}
