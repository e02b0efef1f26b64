//! Version and settings of this installation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::redact::redact_setting;
use crate::cmd::flags::vela::VelaFlags;

/// Environment variables of others that change the behavior of this program.
const OTHERS: [&str; 12] = [
    "RUST_LOG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "KUBERNETES_SERVICE_HOST",
    "POD_NAME",
    "TMPDIR",
    "MALLOC_ARENA_MAX",
    "DB_PASSWORD",
];

/// Returns version, platform and the variables of the environment, without secrets.
pub fn text() -> String {
    let features = if cfg!(feature = "otel") { "otel" } else { "" };
    let mut text = format!(
        "version={}\nfeatures={}\nos={}\narch={}\n",
        env!("CARGO_PKG_VERSION"),
        features,
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    for (name, value) in variables() {
        // A string takes all that is written.
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

fn variables() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let known = variables.filter(|(name, _)| name.starts_with("PORTOLAN_") || OTHERS.contains(&name.as_str()));
    let public = known.map(|(name, value)| {
        let value = value.to_string_lossy().into_owned();
        let flag = name.strip_prefix("PORTOLAN_");
        let value = match flag.map(|flag| format!("--{}", flag.to_lowercase().replace('_', "-"))) {
            Some(flag) => public_argument(&format!("{flag}={value}"))
                .split_once('=')
                .map(|(_, value)| value.to_owned()),
            None if name == "DB_PASSWORD" => None,
            None => Some(redact_setting(&name, &value)),
        };
        (name, value.unwrap_or_else(|| "...".to_owned()))
    });
    public.collect()
}

/// Returns an argument of the command line without what may be secret: values of unknown flags, and parts of URLs.
pub fn public_argument(argument: &str) -> String {
    match argument.split_once('=') {
        Some((flag, value)) if is_public(flag) => format!("{flag}={}", redact_setting(flag, value)),
        Some((flag, _)) => format!("{flag}=..."),
        None if argument != "run" && !argument.starts_with("--") => "...".to_owned(),
        None => argument.to_owned(),
    }
}

fn is_public(flag: &str) -> bool {
    let is_ours = || {
        let command = crate::cmd::command();
        let run = command.find_subcommand("run");
        let mut flags = run
            .into_iter()
            .flat_map(clap::Command::get_arguments)
            .chain(command.get_arguments());
        flags.any(|argument| {
            argument
                .get_long()
                .is_some_and(|long| flag.strip_prefix("--") == Some(long))
        })
    };
    VelaFlags::is_known(flag) || is_ours()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("run", "run")]
    #[case("--sync-workers=8", "--sync-workers=8")]
    #[case("--log-level=debug", "--log-level=debug")]
    #[case(
        "--database-url=postgres://me:secret@db/x?password=secret",
        "--database-url=postgres://db/x"
    )]
    #[case("--database-url=postgres://me:se'cr et@db/x", "--database-url=postgres://db/x")]
    #[case("--database-url=me:se/cret@db/x", "--database-url=db/x")]
    #[case("--profiling-addr=:6060", "--profiling-addr=:6060")]
    #[case("--unknown=secret", "--unknown=...")]
    #[case("--token=secret", "--token=...")]
    #[case("secret", "...")]
    fn arguments_are_shown_without_secrets(#[case] argument: &str, #[case] shown: &str) {
        assert_eq!(public_argument(argument), shown);
    }
}
