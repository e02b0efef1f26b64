//! The `portolan` binary: see `portolan --help`.

fn main() -> std::process::ExitCode {
    portolan::cmd::main()
}
