//! The real helm, with a separate home directory.

use std::path::Path;
use std::process::{Output, Stdio};

use tokio::process::Command;

use super::control_plane::tool;

/// Returns a helm command that keeps its state in `home` and ignores the settings of the current user.
pub fn command(home: &Path, arguments: &[&str]) -> Command {
    command_of("helm", home, arguments)
}

/// Same with a release: `helm` is Helm 3, `helm4` is Helm 4.
pub fn command_of(release: &str, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(tool(release));
    command.args(arguments).stdin(Stdio::null());
    for (variable, directory) in [
        ("HELM_CACHE_HOME", "cache"),
        ("HELM_CONFIG_HOME", "config"),
        ("HELM_DATA_HOME", "data"),
        // Helm looks for credentials there too.
        ("DOCKER_CONFIG", "docker"),
    ] {
        command.env(variable, home.join(directory));
    }
    command
}

pub async fn run(mut command: Command) -> Output {
    command.output().await.expect("helm can be run")
}

/// Runs a command, which must succeed, and returns its output.
pub async fn output(command: Command) -> String {
    let shown = format!("{:?}", command.as_std().get_args().collect::<Vec<_>>());
    let output = run(command).await;
    assert!(
        output.status.success(),
        "helm {shown}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("helm prints UTF-8")
}
