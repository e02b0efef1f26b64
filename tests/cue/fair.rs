//! Hanging templates of one namespace do not keep others from their turn.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use portolan::cue::EvaluatorOptions;
use serde_json::json;

use super::hostile::ENDLESS;
use super::{NamedProgram, evaluator};
use crate::support::eventually::{SOON, eventually};

#[tokio::test]
async fn a_namespace_waits_for_a_part_of_the_timeout_while_another_hangs() {
    let timeout = Duration::from_secs(10);
    let program = NamedProgram::new("cue-fair");
    let evaluator = evaluator(EvaluatorOptions {
        workers: NonZeroUsize::new(2).unwrap(),
        timeout,
        ..program.options()
    });
    let hanging: Vec<_> = (0..200)
        .map(|_| {
            let evaluator = evaluator.clone();
            tokio::spawn(async move { evaluator.evaluate("hostile", ENDLESS.to_owned()).await })
        })
        .collect();
    eventually(SOON, "two processes", async || {
        (program.processes().len() == 2).then_some(())
    })
    .await;
    for number in 0..3 {
        let started = Instant::now();
        let result = evaluator.evaluate("other", format!("a: {number}")).await;
        assert_eq!(result, Ok(json!({"a": number})));
        assert!(started.elapsed() < timeout * 3 / 4, "{:?}", started.elapsed());
    }
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}
