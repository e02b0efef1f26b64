//! Completes names of objects of the cluster, and of charts of the database.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Resource};

use crate::api::{AppRepository, Application, NamespacedName, oam};
use crate::cmd::{self, show::Show};
use crate::runtime::kube_client::{ConnectOptions, connect_silently};

/// A shell waits for the answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// In the order of names. Those that do not begin with the typed letters are dropped here.
const MAX_NAMES: u32 = 5_000;

/// Lets the arguments that name objects complete them.
pub(in crate::cmd) fn add_names(command: Command) -> Command {
    command.mut_subcommands(|command| match command.get_name() {
        "status" | "history" | "resync" => name_completes(command, ArgValueCandidates::new(repositories)),
        "show" => command.mut_arg("chart", |chart| chart.add(ArgValueCompleter::new(charts))),
        "apps" => name_completes(command, ArgValueCandidates::new(applications)),
        "vela" => command
            .mut_subcommands(|command| name_completes(command, ArgValueCandidates::new(applications_of_kubevela))),
        _ => command,
    })
}

fn name_completes(command: Command, names: ArgValueCandidates) -> Command {
    command.mut_args(move |argument| {
        let is_name = argument.is_positional() && argument.get_id() == "name";
        if is_name { argument.add(names.clone()) } else { argument }
    })
}

/// Lets flags of namespaces complete them.
pub(in crate::cmd) fn complete_namespace(argument: Arg) -> Arg {
    let is_namespace = argument.get_long().is_some_and(|long| long.ends_with("namespace"));
    if is_namespace {
        argument.add(ArgValueCandidates::new(namespaces))
    } else {
        argument
    }
}

fn namespaces() -> Vec<CompletionCandidate> {
    candidates::<Namespace>(None, "")
}

fn repositories() -> Vec<CompletionCandidate> {
    candidates::<AppRepository>(namespace(), "")
}

/// Completes the repository, and after the slash a chart that the database has. Clap does not filter these.
fn charts(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().into_owned();
    let mut names = match typed.split_once('/') {
        None => objects::<AppRepository>(namespace(), "/"),
        Some((repository, _)) => {
            let repository = repository.to_owned();
            in_time(async move || charts_of(&repository).await)
        }
    };
    names.retain(|name| name.starts_with(&typed));
    names.into_iter().map(CompletionCandidate::new).collect()
}

async fn charts_of(repository: &str) -> Option<BTreeSet<String>> {
    // A server may need a token that only the user can give.
    let show = typed_command().filter(|show| show.server.server.is_none())?;
    let (namespace, mut charts) = (show.query.namespace(), BTreeSet::new());
    let visit = |name: NamespacedName, chart_id: &str| {
        let is_shown = namespace.is_none_or(|namespace| namespace == name.namespace);
        let chart = chart_id.replace("%2F", "/");
        if is_shown && name.name == repository && chart.chars().all(is_safe) {
            charts.insert(chart);
        }
    };
    let database = &show.database;
    let read = database.read(async |catalog| Ok(catalog.visit_chart_ids(visit).await?));
    read.await.ok()?;
    Some(charts)
}

/// Returns false for characters that a shell may read as something else: bash quotes no candidate, and authors choose the
/// names of charts.
const fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '/' | '-')
}

/// Returns the command `show` that is being typed.
fn typed_command() -> Option<Show> {
    let words = words();
    // A shell appends its line.
    let start = words.iter().position(|word| word == "--").map_or(0, |end| end + 1);
    let line = words.into_iter().skip(start).map(OsString::from);
    match cmd::parse(line).ok()?.command {
        cmd::Command::Show(show) => Some(show),
        _ => None,
    }
}

fn applications() -> Vec<CompletionCandidate> {
    candidates::<Application>(namespace(), "")
}

fn applications_of_kubevela() -> Vec<CompletionCandidate> {
    candidates::<oam::Application>(namespace(), "")
}

fn namespace() -> Option<String> {
    setting("namespace").or_else(|| value_of(&words(), "-n"))
}

/// Returns the value of a flag in the command line that is being completed, or of its variable.
fn setting(flag: &str) -> Option<String> {
    let variable = format!("PORTOLAN_{}", flag.to_uppercase());
    let value = value_of(&words(), &format!("--{flag}")).or_else(|| std::env::var(variable).ok());
    value.filter(|value| !value.is_empty())
}

fn words() -> Vec<String> {
    std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn value_of(words: &[String], flag: &str) -> Option<String> {
    let with_value = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    let next = || words.iter().skip_while(|word| *word != flag).nth(1).map(String::as_str);
    with_value.or_else(next).map(str::to_owned)
}

fn candidates<K: Resource<DynamicType = ()>>(namespace: Option<String>, suffix: &str) -> Vec<CompletionCandidate> {
    let names = objects::<K>(namespace, suffix).into_iter();
    names.map(CompletionCandidate::new).collect()
}

fn objects<K: Resource<DynamicType = ()>>(namespace: Option<String>, suffix: &str) -> BTreeSet<String> {
    let resource = ApiResource::erase::<K>(&());
    let options = ConnectOptions {
        kubeconfig: setting("kubeconfig").map(Into::into),
        context: setting("context"),
        ..ConnectOptions::default()
    };
    let names = in_time(async move || list(&options, &resource, namespace).await);
    names.into_iter().map(|name| name + suffix).collect()
}

/// Returns no names after a failure or the timeout: nothing is printed into a command line.
fn in_time(list: impl AsyncFnOnce() -> Option<BTreeSet<String>> + Send + 'static) -> BTreeSet<String> {
    let (sender, receiver) = mpsc::channel();
    // A thread, because a credential plugin blocks. It ends with this process.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let names = runtime.ok().and_then(|runtime| runtime.block_on(list()));
        // After the timeout, the receiver is gone.
        let _ = sender.send(names);
    });
    receiver.recv_timeout(TIMEOUT).ok().flatten().unwrap_or_default()
}

async fn list(options: &ConnectOptions, resource: &ApiResource, namespace: Option<String>) -> Option<BTreeSet<String>> {
    let client = connect_silently(options).await.ok()?;
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, &namespace, resource),
        None => Api::all_with(client, resource),
    };
    let listed = api.list_metadata(&ListParams::default().limit(MAX_NAMES)).await.ok()?;
    Some(
        listed
            .items
            .into_iter()
            .filter_map(|object| object.metadata.name)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_flag_is_in_its_word_or_the_next_one() {
        let value = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            value_of(&words, "--context")
        };
        assert_eq!(value("portolan status --context two").as_deref(), Some("two"));
        assert_eq!(value("portolan status --context=two web").as_deref(), Some("two"));
        assert_eq!(value("portolan status --context"), None);
        assert_eq!(value("portolan status two"), None);
    }
}
