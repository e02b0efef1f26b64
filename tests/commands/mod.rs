//! The commands, by the names and with the arguments that Kubeapps' programs are called with too, as the real binary.

mod in_a_cluster;
mod one_shot;
mod shutdown;

use std::process::{Command, Output};

use crate::support::process::ScratchFolder;

/// The binary under the name of a program that it replaces.
fn called_as(folder: &ScratchFolder, name: &str) -> Command {
    let link = folder.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_portolan"), &link).unwrap();
    }
    let ours = crate::support::portolan::command::<&str>([]);
    let mut command = Command::new(link);
    // The same environment, without the settings of whoever runs the tests.
    for (name, value) in ours.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
}
