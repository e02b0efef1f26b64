//! The filter of levels: from the flags at the start, replaced at `/debug/log`.

use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::cmd::Error;
use crate::cmd::flags::{LogFlags, non_empty};
use crate::server::LogFilter;

/// The default filter. At info, the scheduler logs every job and sqlx every existing table.
const DEFAULT_FILTER: &str = "info,tokio_cron_scheduler=warn,sqlx=warn";

const USAGE: &str = "use a level such as debug, or a list such as info,portolan::http=debug";

/// Returns the filter of the flags, of `RUST_LOG`, or else `default_filter`.
pub fn filter(flags: &LogFlags, default_filter: Option<&str>, environment: Option<&str>) -> Result<EnvFilter, Error> {
    let level = non_empty(flags.log_level.as_deref()).or(flags.debug.then_some("debug"));
    let parsed = match level {
        Some(level) => with_defaults(level),
        None => {
            let environment = environment.filter(|text| !text.is_empty());
            parse(environment.or(default_filter).unwrap_or(DEFAULT_FILTER))
        }
    };
    parsed.map_err(|error| Error::Usage(format!("invalid value for --log-level: {error}")))
}

fn with_defaults(level: &str) -> Result<EnvFilter, String> {
    parse(&format!("{DEFAULT_FILTER},{level}"))
}

fn parse(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| format!("{error}; {USAGE}"))
}

impl LogFilter for reload::Handle<EnvFilter, Registry> {
    fn current(&self) -> String {
        // Fails only after the end of logging.
        self.with_current(ToString::to_string).unwrap_or_default()
    }

    fn replace(&self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Err(format!("the filter is empty; {USAGE}"));
        }
        let filter = with_defaults(text)?;
        self.reload(filter).map_err(|error| error.to_string())?;
        tracing::info!(filter = text, "log filter changed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(level: &str) -> LogFlags {
        LogFlags {
            log_level: Some(level.to_owned()),
            ..LogFlags::default()
        }
    }

    #[test]
    fn the_flag_overrides_the_environment_and_limits_the_scheduler_to_warnings() {
        let text = filter(&flags("debug"), None, Some("error")).unwrap().to_string();
        assert!(
            text.contains("debug") && text.contains("tokio_cron_scheduler=warn") && !text.contains("error"),
            "{text}"
        );
        let text = filter(&LogFlags::default(), Some("warn"), Some("error"))
            .unwrap()
            .to_string();
        assert_eq!(text, "error");
    }

    #[test]
    fn an_invalid_filter_is_invalid_usage() {
        assert!(matches!(
            filter(&flags("portolan=loud"), None, None),
            Err(Error::Usage(_))
        ));
    }
}
