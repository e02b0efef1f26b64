//! What was written last.

use super::*;
use crate::api::{Application, ApplicationStatus};
use crate::application::known::{Known, Said};
use crate::application::memory::Memory;

fn application(uid: &str, version: &str, ready: Option<&str>) -> Known {
    let application: Application = serde_json::from_value(json!({
        "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
        "metadata": { "name": "shop", "namespace": "team", "uid": uid, "resourceVersion": version },
        "status": { "componentsReady": ready }
    }))
    .unwrap();
    application.into()
}

fn said(ready: &str) -> Said {
    Said::of(&ApplicationStatus {
        components_ready: Some(ready.to_owned()),
        ..ApplicationStatus::default()
    })
}

fn name() -> ObjectName {
    declared(json!({})).name
}

#[test]
fn what_was_written_counts_until_the_store_shows_another_version() {
    let memory = Memory::default();
    let seen = application("u", "1", Some("0/1"));
    memory.note(name(), &seen, Some("9".to_owned()), said("1/1"));
    assert_eq!(memory.version_of(&name(), &seen).as_deref(), Some("9"));
    assert_eq!(memory.said_of(&name(), &seen), Some(said("1/1")));
    let edited = application("u", "2", Some("5/5"));
    assert_eq!(memory.said_of(&name(), &edited), Some(said("5/5")));
    assert_eq!(memory.version_of(&name(), &edited).as_deref(), Some("2"));
}

#[test]
fn what_was_written_to_an_earlier_object_of_the_name_does_not_count() {
    let memory = Memory::default();
    memory.note(name(), &application("u", "1", None), None, said("1/1"));
    let anew = application("v", "1", None);
    assert_eq!(memory.said_of(&name(), &anew), anew.said);
    assert!(!memory.holds(&name(), &application("v", "2", Some("1/1"))));
}

#[test]
fn our_own_write_is_known_again() {
    let memory = Memory::default();
    memory.note(name(), &application("u", "1", None), None, said("1/1"));
    assert!(memory.holds(&name(), &application("u", "2", Some("1/1"))));
    assert!(!memory.holds(&name(), &application("u", "2", Some("0/1"))));
    memory.forget(&name());
    assert!(!memory.holds(&name(), &application("u", "2", Some("1/1"))));
}
