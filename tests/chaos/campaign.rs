//! A scenario once for each interruption, side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::sync::Semaphore;

use super::journal::Journal;
use super::point::{Fault, Interruption, Target};
use super::run::{Outcome, interrupted, undisturbed};
use super::scenario::Scenario;
use super::state::differences;
use crate::support::project;
use crate::support::record::record;

const PAGE: &str = "docs/explanation/reliability.md";
/// Runs after which the report is written.
const REPORT_EACH: usize = 25;
/// Has no factor in common with the number of faults of a point.
const STRIDE: usize = 11;

/// The size of a campaign.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Interruptions of each kind of point; none for all.
    pub sample: Option<usize>,
    /// Time without writes after each run.
    pub rest: Duration,
    /// Runs at the same time.
    pub active: usize,
    /// Runs at the same time, with those at rest.
    pub all: usize,
    /// Results are recorded, and those of a campaign that was stopped are taken up; none for a test.
    pub goes_on: Option<bool>,
}

/// The results of a campaign.
pub struct Results {
    scenario: Scenario,
    /// All interruptions, of which some may not have been run.
    all: Vec<Interruption>,
    outcomes: Vec<(Interruption, Outcome)>,
    writes_at_rest: Vec<String>,
}

/// Runs a scenario undisturbed, and once for each interruption.
pub async fn campaign(scenario: Scenario, extent: Extent) -> Results {
    let baseline = undisturbed(scenario, extent.rest).await;
    let mut journal = extent.goes_on.map(|goes_on| Journal::open(scenario, goes_on));
    let mut all = baseline.recording.interruptions(&baseline.keys);
    all.retain(|interruption| scenario.has(interruption));
    if let Some(journal) = &mut journal {
        let again = undisturbed(scenario, Duration::ZERO).await;
        assert_eq!(
            differences(&baseline.end, &again.end),
            Vec::<String>::new(),
            "two undisturbed runs differ"
        );
        all = journal.plan(all);
    }
    let mut results = Results {
        scenario,
        outcomes: journal.as_mut().map(Journal::outcomes).unwrap_or_default(),
        writes_at_rest: baseline.writes_at_rest,
        all,
    };
    let chosen = match extent.sample {
        None => ordered(&results.all),
        Some(count) => sample(&results.all, count),
    };
    let is_left = |interruption: &Interruption| results.outcomes.iter().all(|(earlier, _)| earlier != interruption);
    let left: Vec<_> = chosen.into_iter().filter(is_left).collect();
    let active = Semaphore::new(extent.active);
    let runs = stream::iter(left).map(async |interruption| {
        let outcome = interrupted(scenario, &interruption, &baseline.end, extent.rest, &active).await;
        (interruption, outcome)
    });
    let mut runs = std::pin::pin!(runs.buffer_unordered(extent.all));
    while let Some((interruption, outcome)) = runs.next().await {
        print_outcome(scenario, &interruption, &outcome);
        if let Some(journal) = &mut journal {
            journal.add(&interruption, &outcome);
        }
        results.outcomes.push((interruption, outcome));
        if journal.is_some() && results.runs().is_multiple_of(REPORT_EACH) {
            results.record();
        }
    }
    results.outcomes.sort_by(|left, right| left.0.cmp(&right.0));
    if journal.is_some() {
        results.record();
    }
    results
}

/// Returns the kills, and then the others by a stride, so that a campaign that is stopped has seen all kinds of them.
fn ordered(all: &[Interruption]) -> Vec<Interruption> {
    let (mut ordered, others): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|one| one.fault.kills());
    let mut others: Vec<_> = others.into_iter().enumerate().collect();
    others.sort_by_key(|(index, _)| index % STRIDE);
    ordered.extend(others.into_iter().map(|(_, interruption)| interruption));
    ordered
}

/// Chooses interruptions of each kind of point by a fixed stride. Leaves out those whose retry takes a minute.
fn sample(all: &[Interruption], count: usize) -> Vec<Interruption> {
    let targets = [
        Target::Write,
        Target::Commit,
        Target::Request,
        Target::Page,
        Target::Event,
    ];
    let of = |target| {
        let is_fast = |interruption: &&Interruption| {
            interruption.fault.target() == target
                && !(target == Target::Page && interruption.point.key.ends_with(".tgz"))
        };
        let fitting: Vec<_> = all.iter().filter(is_fast).collect();
        let chosen = (0..count.min(fitting.len())).map(|number| {
            // In the middle of its part, and one further each time: a stride that is a multiple of the faults of a point
            // would choose one fault.
            let at = (2 * number + 1) * fitting.len() / (2 * count.min(fitting.len())) + number;
            fitting[at.min(fitting.len() - 1)].clone()
        });
        let mut chosen: Vec<_> = chosen.collect();
        chosen.dedup();
        chosen
    };
    targets.into_iter().flat_map(of).collect()
}

fn print_outcome(scenario: Scenario, interruption: &Interruption, outcome: &Outcome) {
    let word = match outcome {
        Outcome { reached: false, .. } => "not reached",
        outcome if outcome.is_same_end() => "same end",
        _ => "DIVERGENCE",
    };
    println!("{}: {interruption}: {word}", scenario.name());
    for difference in outcome.divergences.iter().take(10) {
        println!("    {difference}");
    }
    for write in &outcome.writes_at_rest {
        println!("    written at rest: {write}");
    }
}

impl Results {
    /// Returns the interruptions after which the end differs, or which cause writes at rest.
    pub fn divergences(&self) -> Vec<String> {
        let at_rest = |write: &String| format!("written at rest: {write}");
        let mut all: Vec<String> = self.writes_at_rest.iter().map(at_rest).collect();
        for (interruption, outcome) in &self.outcomes {
            let first = outcome.divergences.first().cloned();
            let what = first.or_else(|| outcome.writes_at_rest.first().map(at_rest));
            all.extend(what.map(|what| format!("{interruption}: {what}")));
        }
        all
    }

    /// Returns the interruptions that took place.
    fn reached(&self) -> usize {
        self.outcomes.iter().filter(|(_, outcome)| outcome.reached).count()
    }

    /// Returns the number of interrupted runs.
    fn runs(&self) -> usize {
        self.outcomes.len()
    }

    /// Returns the number of points that can be interrupted.
    fn points(&self) -> usize {
        let points: BTreeSet<_> = self
            .all
            .iter()
            .map(|interruption| (&interruption.point, interruption.fault.target() as u8))
            .collect();
        points.len()
    }

    /// Writes the report to docs/explanation/reliability.md.
    fn record(&self) {
        let [begin, end] = self.marks();
        record(PAGE, [&begin, &end], &self.report());
    }

    /// Fails if a report could not be written: it would be noticed after half an hour.
    pub fn assert_has_place(&self) {
        let page = std::fs::read_to_string(project(PAGE)).expect("the page can be read");
        for mark in self.marks() {
            assert!(page.contains(&mark), "{PAGE} needs {mark}");
        }
    }

    fn marks(&self) -> [String; 2] {
        let name = self.scenario.name();
        [
            format!("<!-- interruptions of {name}: written by `make chaos` -->"),
            format!("<!-- end of interruptions of {name} -->"),
        ]
    }

    /// Fails if many interruptions did not take place, so that the campaign shows little.
    pub fn assert_reached(&self) {
        let (reached, runs) = (self.reached(), self.runs());
        assert!(
            reached > 0 && reached * 4 >= runs * 3,
            "only {reached} of {runs} interruptions were reached"
        );
    }

    fn unreached(&self) -> Vec<String> {
        let unreached = self.outcomes.iter().filter(|(_, outcome)| !outcome.reached);
        unreached.map(|(interruption, _)| interruption.to_string()).collect()
    }

    /// Returns the results as Markdown, without dates.
    pub fn report(&self) -> String {
        let mut by_fault = BTreeMap::<Fault, [usize; 3]>::new();
        for (interruption, outcome) in &self.outcomes {
            let counts = by_fault.entry(interruption.fault).or_default();
            for (count, is_one) in counts.iter_mut().zip([true, outcome.reached, !outcome.is_same_end()]) {
                *count += usize::from(is_one);
            }
        }
        let divergences = self.divergences();
        let mut text = format!(
            "{}: {} points, {} of {} interruptions run, {} reached, {} divergences.\n\n|fault|at|interruptions|reached|divergences|\n|---|---|---:|---:|---:|\n",
            self.scenario.name(),
            self.points(),
            self.runs(),
            self.all.len(),
            self.reached(),
            divergences.len()
        );
        for (fault, [runs, reached, diverged]) in by_fault {
            // A string takes all that is written.
            let _ = writeln!(text, "|{fault}|{}|{runs}|{reached}|{diverged}|", target(fault));
        }
        let exited = self.outcomes.iter().filter(|(_, outcome)| outcome.exited);
        let exited: Vec<String> = exited.map(|(interruption, _)| interruption.to_string()).collect();
        let lists = [
            ("Not reached", self.unreached()),
            ("The process exited and was started again", exited),
            ("Divergences", divergences),
        ];
        for (title, lines) in lists {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{title}:\n");
            }
            for line in lines {
                let _ = writeln!(text, "- `{}`", line.replace(['`', '\n'], " "));
            }
        }
        text
    }
}

fn target(fault: Fault) -> &'static str {
    match fault.target() {
        Target::Write => "write to the API server",
        Target::Commit => "commit",
        Target::Request => "request to the API server",
        Target::Page => "request to the repository",
        Target::Event => "event of a watch",
    }
}

#[test]
fn a_sample_is_spread_over_all_kinds_of_points_and_repeatable() {
    use super::point::Point;
    let of = |fault, count| {
        (0..count).map(move |number| Interruption {
            fault,
            point: Point {
                key: "GET /web.yaml".to_owned(),
                number,
            },
        })
    };
    let all: Vec<_> = of(Fault::KilledBeforeWrite, 10).chain(of(Fault::EventCut, 3)).collect();
    let chosen = sample(&all, 2);
    let numbers: Vec<_> = chosen
        .iter()
        .map(|chosen| (chosen.fault, chosen.point.number))
        .collect();
    let expected = [
        (Fault::KilledBeforeWrite, 2),
        (Fault::KilledBeforeWrite, 8),
        (Fault::EventCut, 0),
        (Fault::EventCut, 2),
    ];
    assert_eq!(numbers, expected);
    assert_eq!(sample(&all, 2), chosen);
}
