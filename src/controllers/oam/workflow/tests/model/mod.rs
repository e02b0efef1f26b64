//! Compares whole runs of random workflows with a model that knows no turns.

mod expect;
mod flow;
mod play;

use proptest::prelude::ProptestConfig;

use super::all;
use expect::expect;
use flow::{Flow, Random};
use play::play;

/// Runs of the test, unless `PROPTEST_CASES` asks for more.
const RUNS: u32 = 3_000;

#[test]
fn a_run_ends_as_the_model() {
    let runs = u64::from(ProptestConfig::default().cases.max(RUNS));
    for seed in 0..runs {
        let flow = Flow::random(&mut Random(seed));
        compare(seed, &flow);
    }
}

fn compare(seed: u64, flow: &Flow) {
    let expected = expect(flow);
    let end = play(flow, &mut Random(!seed));
    let context = || format!("seed {seed}\n{flow:#?}\n{:#?}", end.status);
    for (step, expected) in expected.steps.iter().enumerate() {
        let name = Flow::name(step);
        let mut statuses = all(&end.status.steps).filter(|status| status.name == name);
        let status = statuses.next();
        assert!(statuses.next().is_none(), "{name} twice: {}", context());
        let state = status.map(|status| (status.phase.as_str(), status.reason.as_str()));
        assert_eq!(state, expected.state, "{name}: {}", context());
        if let Some(attempts) = expected.attempts {
            assert_eq!(end.attempts[step], attempts, "attempts of {name}: {}", context());
        }
    }
    assert_eq!(end.state, expected.workflow, "{}", context());
    assert_eq!(end.status.terminated, expected.is_terminated, "{}", context());
    assert_eq!(end.status.phase, expected.workflow.as_str());
    assert!(!end.status.suspend, "{}", context());
}
