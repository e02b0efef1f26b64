use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::super::fights::{Fights, Restore, last_other_manager};

const RESYNC: Duration = Duration::from_secs(300);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Restores an object five times in five seconds.
fn fight() -> Fights<String> {
    let mut fights = Fights::new(RESYNC);
    for second in 0..5 {
        assert_eq!(fights.restore(&"a".to_owned(), at(second)), Restore::Now);
    }
    fights
}

#[test]
fn an_object_is_restored_at_once() {
    let mut fights = Fights::new(RESYNC);
    for minute in 0..20 {
        assert_eq!(
            fights.restore(&"a".to_owned(), at(60 * minute)),
            Restore::Now,
            "rare changes"
        );
    }
}

#[test]
fn an_object_that_is_fought_over_is_restored_less_and_less_often() {
    let mut fights = fight();
    let mut expected = at(34);
    assert_eq!(
        fights.restore(&"a".to_owned(), at(5)),
        Restore::At {
            time: expected,
            is_new: true
        }
    );
    assert_eq!(
        fights.restore(&"a".to_owned(), at(6)),
        Restore::At {
            time: expected,
            is_new: false
        }
    );
    for delay in [60, 120, 240, 300, 300] {
        let now = expected;
        assert_eq!(fights.restore(&"a".to_owned(), now), Restore::Now);
        expected = now + Duration::from_secs(delay);
        let answer = fights.restore(&"a".to_owned(), now + Duration::from_secs(1));
        assert_eq!(
            answer,
            Restore::At {
                time: expected,
                is_new: false
            },
            "{delay}"
        );
    }
}

#[test]
fn other_objects_are_not_delayed() {
    assert_eq!(fight().restore(&"b".to_owned(), at(5)), Restore::Now);
}

#[test]
fn a_fight_that_has_ended_is_forgotten() {
    let mut fights = fight();
    assert!(matches!(fights.restore(&"a".to_owned(), at(5)), Restore::At { .. }));
    assert_eq!(fights.restore(&"a".to_owned(), at(34)), Restore::Now);
    for second in 0..5 {
        assert_eq!(fights.restore(&"a".to_owned(), at(200 + second)), Restore::Now);
    }
    assert!(matches!(
        fights.restore(&"a".to_owned(), at(205)),
        Restore::At { is_new: true, .. }
    ));
}

#[test]
fn restores_that_fail_are_no_fight() {
    let mut fights = Fights::new(RESYNC);
    for second in 0..20 {
        assert_eq!(fights.restore(&"a".to_owned(), at(second)), Restore::Now);
        fights.take_back(&"a".to_owned());
    }
    fights.take_back(&"unknown".to_owned());
}

#[test]
fn a_clock_that_is_set_back_delays_no_longer_than_usual() {
    let mut fights = fight();
    let answer = fights.restore(&"a".to_owned(), at(-1_000));
    assert_eq!(
        answer,
        Restore::At {
            time: at(34),
            is_new: true
        }
    );
}

#[test]
fn many_objects_are_remembered_to_a_limit() {
    let mut fights = fight();
    for number in 0..20_000 {
        fights.restore(&number.to_string(), at(10));
    }
    assert_eq!(
        fights.restore(&"a".to_owned(), at(11)),
        Restore::Now,
        "forgotten as the oldest"
    );
}

#[test]
fn the_last_manager_is_named() {
    let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time});
    let mut status = entry("kube-controller-manager", "2026-01-04T00:00:00Z");
    status["subresource"] = "status".into();
    let entries = [
        entry("kubectl", "2026-01-01T00:00:00Z"),
        entry("rollouts", "2026-01-02T00:00:00Z"),
        entry("portolan", "2026-01-03T00:00:00Z"),
        status,
    ];
    let live = json!({"metadata": {"managedFields": entries}});
    assert_eq!(last_other_manager(&live, "portolan"), Some("rollouts"));
    assert_eq!(last_other_manager(&json!({"metadata": {}}), "portolan"), None);
}
