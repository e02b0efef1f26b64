//! Reference pages of the documentation, and the help about KubeVela's flags, from the definitions of the flags.

mod command_line;
mod kubevela;
mod markdown;

pub use command_line::command_line;
pub use kubevela::{kubevela_flags, kubevela_help};

const GENERATED: &str = "This page is generated from the program; `UPDATE_EXPECT=1 make test ARGS=surface` writes it.";
