use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controllers::oam::workflow::operations::logs::{
    LOG_CONFIG, LogConfig, LogConfigError, log_configs, record_log_config,
};

/// Records the arguments of one call.
fn record(data: &mut BTreeMap<String, String>, step: &str, arguments: Value) -> Result<bool, LogConfigError> {
    let mut config = LogConfig::default();
    config.add(&arguments)?;
    record_log_config(data, step, config)
}

fn recorded(data: &BTreeMap<String, String>) -> Value {
    serde_json::from_str(&data[LOG_CONFIG]).unwrap()
}

#[test]
fn logs_of_steps_are_recorded_as_kubevela_reads_them() {
    let mut data = BTreeMap::from([("vars".to_owned(), "a: 1\n".to_owned())]);
    let resources = json!([{ "labelSelector": { "job": "build" }, "namespace": "ci" }, { "name": "pod" }]);
    let config = json!({ "source": { "resources": resources } });
    assert_eq!(record(&mut data, "build", config.clone()), Ok(true));
    assert_eq!(record(&mut data, "build", config), Ok(false));
    assert_eq!(
        record(&mut data, "note", json!({ "data": { "a": 1 }, "level": 3 })),
        Ok(true)
    );
    let expected = json!({
        "build": { "source": { "resources": [
            { "namespace": "ci", "labelSelector": { "job": "build" } }, { "name": "pod" },
        ] } },
        "note": { "data": true },
    });
    assert_eq!(recorded(&data), expected);
    assert_eq!(data["vars"], "a: 1\n");
}

#[test]
fn later_records_of_a_step_keep_what_they_lack() {
    let mut data = BTreeMap::new();
    record(&mut data, "a", json!({ "source": { "url": "http://one" } })).unwrap();
    record(&mut data, "a", json!({ "data": "text" })).unwrap();
    record(
        &mut data,
        "a",
        json!({ "data": null, "source": { "resources": [{ "name": "p" }] } }),
    )
    .unwrap();
    let expected = json!({ "a": { "data": true, "source": { "url": "http://one", "resources": [{ "name": "p" }] } } });
    assert_eq!(recorded(&data), expected);
}

#[test]
fn calls_of_a_step_are_one_record_without_their_data() {
    let mut config = LogConfig::default();
    for number in 0..100 {
        let resources = json!([{ "name": format!("pod-{number}") }]);
        let arguments = json!({ "data": "x".repeat(100_000), "source": { "resources": resources } });
        config.add(&arguments).unwrap();
    }
    let large = json!({ "source": { "url": "x".repeat(100_000) } });
    assert_eq!(config.add(&large), Err(LogConfigError::TooLarge));
    let expected = json!({ "data": true, "source": { "resources": [{ "name": "pod-99" }] } });
    assert_eq!(json!(config), expected);
}

#[test]
fn arguments_of_another_form_or_size_are_refused() {
    let mut data = BTreeMap::new();
    assert_eq!(record(&mut data, "a", json!([1])), Err(LogConfigError::NotAStruct));
    assert_eq!(
        record(&mut data, "a", json!({ "source": "x" })),
        Err(LogConfigError::NotAStruct)
    );
    let large = json!({ "source": { "url": "x".repeat(100_000) } });
    assert_eq!(record(&mut data, "a", large), Err(LogConfigError::TooLarge));
    assert!(data.is_empty());
    // Selecting more pods than those named would be worse than selecting none.
    let odd = json!({ "source": { "resources": [{ "name": "p", "labelSelector": "all" }, null, 7] } });
    record(&mut data, "a", odd).unwrap();
    assert_eq!(recorded(&data), json!({ "a": { "source": {} } }));
}

#[test]
fn invalid_records_are_ignored() {
    for text in ["", "null", "[]", "{", "{\"a\": 1}"] {
        let data = BTreeMap::from([(LOG_CONFIG.to_owned(), text.to_owned())]);
        assert!(log_configs(&data).is_empty(), "{text}");
    }
    let data = BTreeMap::from([(LOG_CONFIG.to_owned(), r#"{"a": {"data": "yes"}, "b": 1}"#.to_owned())]);
    let configs = log_configs(&data);
    assert_eq!(configs.len(), 1);
    assert!(!configs["a"].data && configs["a"].source.is_none());
}
