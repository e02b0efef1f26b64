//! The command line: one file for each subcommand; wiring lives here and nowhere else.
