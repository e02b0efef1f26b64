use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};

use super::changes::StatusParts;
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationStatus};
use crate::cmd::{Error, failed_to, output};
use crate::runtime::kube_client::ApiError;

/// About a century. A longer time might overflow.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365 * 100);

/// Prints changes until the Application is deleted or the time is over. The watch begins again after errors.
pub async fn print_changes(
    client: &Client,
    name: &NamespacedName,
    status: &ApplicationStatus,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
    let mut states = pin!(watch_object(applications, &name.name).default_backoff());
    let mut end = pin!(sleep_until(Instant::now() + timeout.unwrap_or(NO_LIMIT).min(NO_LIMIT)));
    let mut before = StatusParts::of(status);
    let mut problem = String::new();
    loop {
        let state = tokio::select! {
            state = states.next() => state,
            () = &mut end => return Ok(()),
        };
        match state {
            Some(Ok(Some(application))) => {
                problem.clear();
                let parts = StatusParts::of(&application.status.unwrap_or_default());
                print(name, parts.changes_since(&before))?;
                before = parts;
            }
            Some(Ok(None)) => return print(name, vec!["deleted".to_owned()]),
            Some(Err(error)) => {
                let error = api_error(&error)?;
                if error.is_forbidden() {
                    return Err(failed_to(format!("watch Application {name}"))(error));
                }
                // It ends each watch after some minutes, and an error of that is no news.
                if error.code.is_none() && error.message != problem {
                    print(name, vec![format!("API server is not available: {error}")])?;
                    problem = error.message;
                }
            }
            None => return Ok(()),
        }
    }
}

/// Returns the error of a request. Other errors end the command.
fn api_error(error: &watcher::Error) -> Result<ApiError, Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Ok(error.into()),
        watcher::Error::WatchError(status) => Ok(kube::Error::Api(status.clone()).into()),
        watcher::Error::NoResourceVersion => Err(Error::Failed(error.to_string())),
    }
}

fn print(name: &NamespacedName, changes: Vec<String>) -> Result<(), Error> {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let lines = changes.into_iter().map(|change| format!("{time} {name}: {change}"));
    output::print(&output::section("", lines))
}
