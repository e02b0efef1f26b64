//! One run of a scenario, undisturbed or with one interruption.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::environment::{DEADLINE, Environment};
use super::point::{Interruption, Keys, Recording, record_events};
use super::scenario::Scenario;
use super::state::{differences, end_of, has_orphans};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::signal::Signal;

/// Time without a change after which an undisturbed run has ended.
const SETTLED: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(250);
const LONGEST_POLL: Duration = Duration::from_secs(4);
/// Time for the process to start or to exit.
const START: Duration = Duration::from_secs(60);

/// An undisturbed run.
pub struct Baseline {
    pub end: Value,
    pub recording: Recording,
    pub keys: Keys,
    /// Writes while nothing changed.
    pub writes_at_rest: Vec<String>,
}

/// The result of an interrupted run.
#[derive(Clone, Deserialize, Serialize)]
pub struct Outcome {
    pub reached: bool,
    /// The process exited at its start, and was started again.
    pub exited: bool,
    /// Differences from the undisturbed end, or why the scenario did not end.
    pub divergences: Vec<String>,
    pub writes_at_rest: Vec<String>,
}

impl Outcome {
    pub fn is_same_end(&self) -> bool {
        self.divergences.is_empty() && self.writes_at_rest.is_empty()
    }
}

/// Runs a scenario without an interruption, and rests for a while.
pub async fn undisturbed(scenario: Scenario, rest: Duration) -> Baseline {
    let environment = Environment::new(scenario).await;
    let events = Arc::<Mutex<Vec<String>>>::default();
    record_events(&environment, Arc::clone(&events));
    let site = scenario.prepare(&environment).await;
    let portolan = start(scenario, &environment, None).await;
    scenario.drive(&environment).await;
    let end = settled_end(scenario, &environment).await;
    let recording = Recording {
        events: events.lock().unwrap().clone(),
        ..Recording::of(&environment)
    };
    let writes_at_rest = at_rest(&environment, rest).await;
    drop((portolan, site));
    let keys = environment.keys();
    environment.database.delete().await;
    Baseline {
        end,
        recording,
        keys,
        writes_at_rest,
    }
}

/// Runs a scenario with an interruption, compares its end, and rests for a while outside of `active`.
pub async fn interrupted(
    scenario: Scenario,
    interruption: &Interruption,
    expected: &Value,
    rest: Duration,
    active: &tokio::sync::Semaphore,
) -> Outcome {
    let permit = active.acquire().await.expect("the semaphore is never closed");
    let environment = Environment::new(scenario).await;
    let site = scenario.prepare(&environment).await;
    let signal = interruption.inject(&environment);
    let mut process = Process {
        scenario,
        interruption,
        environment: &environment,
        portolan: None,
        signal: Arc::clone(&signal),
        is_restarted: false,
        has_exited: false,
    };
    let run = AssertUnwindSafe(process.drive()).catch_unwind().await;
    let mut divergences = match run {
        Ok(()) => until_end(scenario, &environment, expected).await,
        Err(panic) => vec![message(panic.as_ref())],
    };
    drop(permit);
    let mut writes_at_rest = Vec::new();
    // A schedule of seconds writes each sync.
    if divergences.is_empty() && !interruption.fault.is_permanent() {
        // As after an undisturbed run: the last deletion is followed by a look for rows that are left.
        tokio::time::sleep(SETTLED).await;
        writes_at_rest = at_rest(&environment, rest).await;
        divergences = differences(expected, &end_of(&environment, scenario.kinds()).await);
    }
    if !divergences.is_empty() {
        print_log(interruption, &process.portolan);
    }
    let exited = process.has_exited;
    drop((process, site));
    environment.database.delete().await;
    Outcome {
        exited,
        reached: signal.is_given(),
        divergences,
        writes_at_rest,
    }
}

/// The process of an interrupted run.
struct Process<'a> {
    scenario: Scenario,
    interruption: &'a Interruption,
    environment: &'a Environment,
    portolan: Option<Portolan>,
    signal: Arc<Signal>,
    is_restarted: bool,
    has_exited: bool,
}

impl Process<'_> {
    /// Drives the scenario, and restarts the process when it is killed.
    async fn drive(&mut self) {
        let environment = self.environment;
        self.start_or_restart().await;
        let mut drive = std::pin::pin!(self.scenario.drive(environment));
        if self.interruption.fault.kills() {
            let has_ended = tokio::select! {
                biased;
                () = &mut drive => true,
                () = self.signal.given() => false,
            };
            if has_ended {
                // A write that nothing waits for, such as the look for orphans after a deletion.
                let _ = tokio::time::timeout(SETTLED, self.signal.given()).await;
            }
            if self.signal.is_given() {
                self.restart().await;
            }
            if has_ended {
                return;
            }
        }
        drive.await;
    }

    /// Starts the process. It may be interrupted before it is ready, or exit by an error that a user has to know of; then
    /// it is started again, as a kubelet does.
    async fn start_or_restart(&mut self) {
        let portolan = Portolan::start(self.environment.command(&self.arguments()));
        let (is_ready, has_exited) = tokio::select! {
            () = portolan.ready(START) => (true, false),
            () = until_exit(&portolan) => (false, true),
            () = self.signal.given(), if self.interruption.fault.kills() => (false, false),
        };
        self.portolan = Some(portolan);
        self.has_exited = has_exited;
        if !is_ready {
            self.restart().await;
        }
    }

    async fn restart(&mut self) {
        if std::mem::replace(&mut self.is_restarted, true) {
            return;
        }
        if let Some(portolan) = &mut self.portolan {
            if !self.has_exited {
                portolan.signal("KILL");
            }
            portolan.exit(START).await;
        }
        self.environment.commits.disconnect();
        self.environment.apis().for_each(FaultProxy::clear_faults);
        self.environment.expire_leases().await;
        self.portolan = Some(start(self.scenario, self.environment, Some(self.interruption)).await);
    }

    fn arguments(&self) -> Vec<String> {
        self.scenario.arguments(self.environment, Some(self.interruption))
    }
}

pub async fn start(scenario: Scenario, environment: &Environment, interruption: Option<&Interruption>) -> Portolan {
    let portolan = Portolan::start(environment.command(&scenario.arguments(environment, interruption)));
    portolan.ready(START).await;
    portolan
}

/// Waits until the process exits.
async fn until_exit(portolan: &Portolan) {
    while !portolan.has_exited() {
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until nothing changes any more.
async fn settled_end(scenario: Scenario, environment: &Environment) -> Value {
    let (mut end, mut since) = (Value::Null, Instant::now());
    let deadline = Instant::now() + DEADLINE;
    // The garbage collector of a busy control plane may be slow.
    while since.elapsed() < SETTLED || has_orphans(&end, scenario.kinds()) {
        assert!(Instant::now() < deadline, "the run does not end: {end:#}");
        let now = end_of(environment, scenario.kinds()).await;
        if now != end {
            (end, since) = (now, Instant::now());
        }
        tokio::time::sleep(POLL).await;
    }
    end
}

/// Waits until the end is the expected one. Returns the last differences.
async fn until_end(scenario: Scenario, environment: &Environment, expected: &Value) -> Vec<String> {
    let deadline = Instant::now() + DEADLINE;
    let mut poll = POLL;
    loop {
        let differences = differences(expected, &end_of(environment, scenario.kinds()).await);
        if differences.is_empty() || Instant::now() > deadline {
            return differences;
        }
        tokio::time::sleep(poll).await;
        // An end that takes a minute is not polled as often as one that takes a second.
        poll = (poll * 2).min(LONGEST_POLL);
    }
}

/// Returns the writes of the process during `rest`.
pub async fn at_rest(environment: &Environment, rest: Duration) -> Vec<String> {
    let keys = environment.keys();
    let before = Recording::of(environment);
    // A fixed window: it shows that nothing is written.
    tokio::time::sleep(rest).await;
    let mut after = Recording::of(environment);
    after.requests.drain(..before.requests.len());
    after.joined.drain(..before.joined.len());
    after.commits.drain(..before.commits.len());
    after.writes(&keys)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "the scenario panics".to_owned())
}

fn print_log(interruption: &Interruption, portolan: &Option<Portolan>) {
    let lines = portolan.as_ref().map(Portolan::lines).unwrap_or_default();
    println!("log after {interruption}:");
    for line in &lines[lines.len().saturating_sub(60)..] {
        println!("    {line}");
    }
}
