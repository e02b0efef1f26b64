//! The points of a run that can be interrupted, and the interruptions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::environment::{Environment, JOINED};
use super::state::without_digests;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::postgres_proxy::Moment;
use crate::support::signal::Signal;
use crate::support::watch_filter::{EventAction, WatchFilter};

/// A fault of the process, of a server or of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Fault {
    /// The process is killed before or after a write to the API server.
    KilledBeforeWrite,
    KilledAfterWrite,
    /// The process is killed before or after a commit.
    KilledBeforeCommit,
    KilledAfterCommit,
    /// A request to the API server fails.
    ApiStatus(u16),
    ApiConnectionCut,
    ApiResponseLost,
    ApiHalfBody,
    /// A request to the chart server fails.
    PageStatus(u16),
    PageConnectionCut,
    PageHalfBody,
    /// The watch is cut at an event.
    EventCut,
    /// An event is lost, and the watch expires later (410).
    EventLost,
}

/// The object of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Write,
    Commit,
    Request,
    Page,
    Event,
}

impl Fault {
    const ALL: [Self; 21] = [
        Self::KilledBeforeWrite,
        Self::KilledAfterWrite,
        Self::KilledBeforeCommit,
        Self::KilledAfterCommit,
        Self::ApiStatus(409),
        Self::ApiStatus(410),
        Self::ApiStatus(429),
        Self::ApiStatus(500),
        Self::ApiConnectionCut,
        Self::ApiResponseLost,
        Self::ApiHalfBody,
        Self::PageStatus(404),
        Self::PageStatus(409),
        Self::PageStatus(410),
        Self::PageStatus(429),
        Self::PageStatus(500),
        Self::PageStatus(503),
        Self::PageConnectionCut,
        Self::PageHalfBody,
        Self::EventCut,
        Self::EventLost,
    ];

    fn of(target: Target) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |fault| fault.target() == target)
    }

    pub fn target(self) -> Target {
        match self {
            Self::KilledBeforeWrite | Self::KilledAfterWrite => Target::Write,
            Self::KilledBeforeCommit | Self::KilledAfterCommit => Target::Commit,
            Self::ApiStatus(_) | Self::ApiConnectionCut | Self::ApiResponseLost | Self::ApiHalfBody => Target::Request,
            Self::PageStatus(_) | Self::PageConnectionCut | Self::PageHalfBody => Target::Page,
            Self::EventCut | Self::EventLost => Target::Event,
        }
    }

    /// Returns true if the process does not survive it.
    pub fn kills(self) -> bool {
        matches!(self.target(), Target::Write | Target::Commit)
    }

    /// Returns true if users see it as a mistake of theirs, so that only the schedule tries again.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::PageStatus(400..=428))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KilledBeforeWrite => f.write_str("killed before the write"),
            Self::KilledAfterWrite => f.write_str("killed after the write"),
            Self::KilledBeforeCommit => f.write_str("killed before the commit"),
            Self::KilledAfterCommit => f.write_str("killed after the commit"),
            Self::ApiStatus(code) | Self::PageStatus(code) => write!(f, "{code}"),
            Self::ApiConnectionCut | Self::PageConnectionCut => f.write_str("connection cut"),
            Self::ApiResponseLost => f.write_str("response lost"),
            Self::ApiHalfBody | Self::PageHalfBody => f.write_str("half a body"),
            Self::EventCut => f.write_str("watch cut at the event"),
            Self::EventLost => f.write_str("event lost, watch expires later"),
        }
    }
}

/// The n-th occurrence of something that runs have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Point {
    pub key: String,
    /// From 0.
    pub number: usize,
}

impl Point {
    /// Numbers keys in their order.
    fn number(keys: impl IntoIterator<Item = String>) -> Vec<Self> {
        let mut points: Vec<Self> = Vec::new();
        for key in keys {
            let number = points.iter().filter(|point| point.key == key).count();
            points.push(Self { key, number });
        }
        points
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Interruption {
    pub fault: Fault,
    pub point: Point,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}: {}", self.point.key, self.point.number + 1, self.fault)
    }
}

/// Names of requests and events that are the same in each run.
#[derive(Clone)]
pub struct Keys {
    /// The namespaces of a run, and their names in each run.
    namespaces: Vec<(String, &'static str)>,
}

impl Keys {
    pub fn of(namespaces: Vec<(String, &'static str)>) -> Self {
        Self { namespaces }
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (namespace, name) in &self.namespaces {
            text = text.replace(namespace, name);
        }
        without_digests(&text)
    }

    /// Returns the name of a request; none for the Lease, which is renewed at any time.
    pub fn request(&self, request: &ApiRequest) -> Option<String> {
        if request.path.contains("/leases") && request.method != Method::DELETE {
            return None;
        }
        let watch = if request.is_watch() { " (watch)" } else { "" };
        Some(format!("{} {}{watch}", request.method, self.text(&request.path)))
    }

    /// Returns the name of an event of a watch; none for bookmarks, and for objects of other tests.
    fn event(&self, request: &ApiRequest, event: &Value) -> Option<String> {
        let kind = event["type"].as_str().filter(|kind| *kind != "BOOKMARK")?;
        let meta = &event["object"]["metadata"];
        let name = meta["name"].as_str()?;
        let is_of = |namespace: &String| meta["namespace"] == *namespace || name.contains(namespace);
        let is_ours = self.namespaces.iter().any(|(namespace, _)| is_of(namespace));
        let plural = request.path.rsplit('/').next().unwrap_or_default();
        // Pods of a Job end with a random text.
        let name = match meta["generateName"].as_str().filter(|_| plural == "pods") {
            Some(generated) => generated.trim_end_matches('-'),
            None => name,
        };
        is_ours.then(|| format!("{kind} {plural}/{}", self.text(name)))
    }
}

fn is_write(request: &ApiRequest) -> bool {
    // Reviews of access store nothing.
    request.method != Method::GET && !request.path.ends_with("reviews")
}

/// Everything that an undisturbed run did.
pub struct Recording {
    pub requests: Vec<ApiRequest>,
    /// Requests to the joined cluster.
    pub joined: Vec<ApiRequest>,
    pub pages: Vec<ApiRequest>,
    pub commits: Vec<String>,
    pub events: Vec<String>,
}

impl Recording {
    /// Returns what the proxies of a run have recorded, without events.
    pub fn of(environment: &Environment) -> Self {
        let joined = environment.joined.as_ref();
        Self {
            requests: environment.api.requests(),
            joined: joined.map(|joined| joined.api.requests()).unwrap_or_default(),
            pages: environment.pages.requests(),
            commits: environment.commits.commits(),
            events: Vec::new(),
        }
    }

    /// Returns each interruption of each point.
    pub fn interruptions(&self, keys: &Keys) -> Vec<Interruption> {
        let names = |requests: &[ApiRequest], fits: &dyn Fn(&ApiRequest) -> bool| {
            let requests = requests.iter().filter(|request| fits(request));
            requests.filter_map(|request| keys.request(request)).collect::<Vec<_>>()
        };
        let in_joined = names(&self.joined, &is_write).into_iter();
        let mut writes = names(&self.requests, &is_write);
        writes.extend(in_joined.map(|key| format!("{JOINED}{key}")));
        // The campaign without a joined cluster has the others.
        let failing = if self.joined.is_empty() {
            &self.requests
        } else {
            &self.joined
        };
        let all = [
            (Target::Write, writes),
            (Target::Commit, self.commits.clone()),
            (Target::Request, names(failing, &|_| true)),
            (Target::Page, names(&self.pages, &|_| true)),
            (Target::Event, self.events.clone()),
        ];
        let of = |(target, keys): (Target, Vec<String>)| {
            let points = Point::number(keys);
            points.into_iter().flat_map(move |point| {
                let point = point.clone();
                Fault::of(target).map(move |fault| Interruption {
                    fault,
                    point: point.clone(),
                })
            })
        };
        all.into_iter().flat_map(of).collect()
    }

    /// Returns the writes to the API server and the commits, without those that a process at rest may do.
    pub fn writes(&self, keys: &Keys) -> Vec<String> {
        let requests = self.requests.iter().chain(&self.joined);
        let requests = requests.filter(|request| is_write(request));
        let requests = requests.filter_map(|request| keys.request(request));
        // The claim of the database is renewed every minute.
        let commits = self
            .commits
            .iter()
            .filter(|commit| !commit.contains("portolan_clusters"));
        requests.chain(commits.cloned()).collect()
    }
}

/// Lets the proxies of a run record its events.
pub fn record_events(environment: &Environment, recorded: Arc<std::sync::Mutex<Vec<String>>>) {
    let keys = environment.keys();
    let filter = WatchFilter::new(move |request, event| {
        let mut recorded = recorded.lock().expect("mutex is not poisoned");
        recorded.extend(keys.event(request, event));
        EventAction::Pass
    });
    let filtered = ApiFault::Filtered(Arc::new(filter));
    environment
        .failing_api()
        .inject(usize::MAX, filtered, ApiRequest::is_watch);
}

impl Interruption {
    /// Injects the fault. Returns the signal that it is reached.
    pub fn inject(&self, environment: &Environment) -> Arc<Signal> {
        let signal = Arc::<Signal>::default();
        match self.fault {
            Fault::KilledBeforeWrite => self.hold_writes(environment, &signal),
            Fault::KilledAfterWrite => {
                let held = ApiFault::ResponseHeld(Arc::clone(&signal));
                let fits = self.nth(environment, &Arc::default(), is_write);
                self.proxy(environment).inject(1, held, fits);
            }
            Fault::KilledBeforeCommit => self.hold_commit(environment, Moment::Before, &signal),
            Fault::KilledAfterCommit => self.hold_commit(environment, Moment::After, &signal),
            Fault::ApiStatus(429) => self.fail(environment, ApiFault::TooManyRequests, &signal),
            Fault::ApiStatus(code) => self.fail(environment, ApiFault::Status(code), &signal),
            Fault::ApiConnectionCut => self.fail(environment, ApiFault::Refused, &signal),
            Fault::ApiResponseLost if self.point.key.ends_with("(watch)") => {
                self.fail(environment, ApiFault::WatchExpired, &signal);
            }
            Fault::ApiResponseLost => self.fail(environment, ApiFault::ResponseLost, &signal),
            Fault::ApiHalfBody if self.point.key.ends_with("(watch)") => {
                self.fail(environment, ApiFault::WatchTruncated, &signal);
            }
            Fault::ApiHalfBody => self.fail(environment, ApiFault::HalfBody, &signal),
            Fault::PageStatus(429) => self.fail(environment, ApiFault::TooManyRequests, &signal),
            Fault::PageStatus(code) => self.fail(environment, ApiFault::Status(code), &signal),
            Fault::PageConnectionCut => self.fail(environment, ApiFault::Refused, &signal),
            Fault::PageHalfBody => self.fail(environment, ApiFault::HalfBody, &signal),
            Fault::EventCut | Fault::EventLost => self.filter_events(environment, &signal),
        }
        signal
    }

    /// Selects the request of this point, and gives the signal.
    fn nth(
        &self,
        environment: &Environment,
        signal: &Arc<Signal>,
        fits: fn(&ApiRequest) -> bool,
    ) -> impl Fn(&ApiRequest) -> bool + Send + use<> {
        let (keys, point, signal) = (environment.keys(), self.point.clone(), Arc::clone(signal));
        let seen = AtomicUsize::new(0);
        let key = point.key.strip_prefix(JOINED).unwrap_or(&point.key).to_owned();
        move |request| {
            let is_key = fits(request) && keys.request(request).as_ref() == Some(&key);
            let is_it = is_key && seen.fetch_add(1, Ordering::SeqCst) == point.number;
            if is_it {
                signal.give();
            }
            is_it
        }
    }

    /// Returns the proxy that reaches the point.
    fn proxy<'a>(&self, environment: &'a Environment) -> &'a FaultProxy {
        match self.fault.target() {
            Target::Page => &environment.pages,
            Target::Write if !self.point.key.starts_with(JOINED) => &environment.api,
            _ => environment.failing_api(),
        }
    }

    fn fail(&self, environment: &Environment, fault: ApiFault, signal: &Arc<Signal>) {
        let fits = self.nth(environment, signal, |_| true);
        self.proxy(environment).inject(1, fault, fits);
    }

    /// Holds the write and all later ones, until the process is killed.
    fn hold_writes(&self, environment: &Environment, signal: &Arc<Signal>) {
        let nth = self.nth(environment, signal, is_write);
        self.proxy(environment).inject(1, ApiFault::Stalled, nth);
        for api in environment.apis() {
            let signal = Arc::clone(signal);
            let is_later = move |request: &ApiRequest| signal.is_given() && is_write(request);
            api.inject(usize::MAX, ApiFault::Stalled, is_later);
        }
    }

    fn hold_commit(&self, environment: &Environment, moment: Moment, signal: &Arc<Signal>) {
        let Point { key, number } = &self.point;
        environment.commits.hold(key, *number, moment, Arc::clone(signal));
    }

    fn filter_events(&self, environment: &Environment, signal: &Arc<Signal>) {
        let (keys, point, fault) = (environment.keys(), self.point.clone(), self.fault);
        let (seen, given) = (AtomicUsize::new(0), Arc::clone(signal));
        let path = Arc::<std::sync::Mutex<String>>::default();
        let lost_from = Arc::clone(&path);
        let filter = WatchFilter::new(move |request, event| {
            let is_key = keys.event(request, event).as_ref() == Some(&point.key);
            if !is_key || seen.fetch_add(1, Ordering::SeqCst) != point.number {
                return EventAction::Pass;
            }
            lost_from
                .lock()
                .expect("mutex is not poisoned")
                .clone_from(&request.path);
            given.give();
            match fault {
                Fault::EventLost => EventAction::Lose,
                _ => EventAction::Cut,
            }
        });
        if self.fault == Fault::EventLost {
            let (signal, has_expired) = (Arc::clone(signal), AtomicBool::new(false));
            environment
                .failing_api()
                .inject(1, ApiFault::WatchExpired, move |request| {
                    let is_it = signal.is_given()
                        && request.is_watch()
                        && request.path == *path.lock().expect("mutex is not poisoned");
                    is_it && !has_expired.swap(true, Ordering::SeqCst)
                });
        }
        let filtered = ApiFault::Filtered(Arc::new(filter));
        environment
            .failing_api()
            .inject(usize::MAX, filtered, ApiRequest::is_watch);
    }
}
