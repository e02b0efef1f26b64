//! The `portolan` binary: see `portolan --help`.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
