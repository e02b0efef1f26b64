//! Patches merged from data against the same patches unified by CUE.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Case;

/// Small values, so that labels and elements meet.
fn value() -> impl Strategy<Value = Value> {
    let scalars = vec![
        json!(1),
        json!(2),
        json!("a"),
        json!("b"),
        json!(true),
        json!(null),
        json!({}),
        json!([]),
    ];
    prop::sample::select(scalars).prop_recursive(3, 24, 3, |value| {
        prop_oneof![
            prop::collection::vec(value.clone(), 0..3).prop_map(Value::Array),
            object(value),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let label = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::btree_map(label, value, 0..3).prop_map(|fields| {
        fields
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value))
            .collect()
    })
}

async fn patched(base: &Value, trait_template: &str) -> Result<Value, String> {
    Case::new(&format!("output: {base}"), json!({}))
        .with(trait_template, Value::Null)
        .render()
        .await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_patch_merged_from_data_is_what_cue_unifies(base in object(value()), patch in object(value())) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (merged, unified) = runtime.block_on(async {
            // A marker anywhere makes the patch data.
            let merged = patched(&base, &format!("patch: {patch}\n// +patchKey=name\nother: []\n")).await;
            (merged, patched(&base, &format!("patch: {patch}\n")).await)
        });
        match (&merged, &unified) {
            (Ok(merged), Ok(unified)) => prop_assert_eq!(merged, unified),
            _ => prop_assert!(merged.is_err() && unified.is_err(), "{merged:?} {unified:?}"),
        }
    }
}
