//! What is kept of an index that is cut while it comes. That the same comes of it is seen wherever the delta is.

use std::sync::Arc;

use super::*;

fn sifted(memory: &Memory, index: &str, at_once: usize) -> Option<Sifted> {
    let mut sieve =
        Sieve::new(Arc::new(memory.known.clone()), &DecodeLimits::default(), None).in_steps_of(at_once.min(STEP));
    for piece in index.as_bytes().chunks(at_once) {
        sieve.take(piece).unwrap();
    }
    sieve.finish().unwrap()
}

fn json(yaml: &str) -> String {
    serde_yaml::from_str::<serde_json::Value>(yaml).unwrap().to_string()
}

#[rstest::rstest]
#[case::yaml(generator::generate(5, 30, 20))]
#[case::json(json(&generator::generate(5, 30, 20)))]
fn of_what_is_known_nothing_is_kept_and_of_the_rest_the_text(#[case] index: String) {
    let memory = follow(&Memory::empty(), &index).memory;
    let at = index.rfind("https://").unwrap();
    let changed = format!("{}https://elsewhere.{}", &index[..at], &index[at + "https://".len()..]);
    for at_once in [1000, 100_000, usize::MAX] {
        let all_known = sifted(&memory, &index, at_once).unwrap();
        assert_eq!((all_known.cuts.len(), all_known.texts.kept()), (30, 0));
        let mut one_is_not = sifted(&memory, &changed, at_once).unwrap();
        let other = one_is_not.cuts.iter().find(|cut| !memory.known.has(cut)).unwrap();
        let text = usize::try_from(other.text.start).unwrap()..usize::try_from(other.text.end).unwrap();
        assert_eq!(one_is_not.texts.kept(), text.len() as u64);
        let mut kept = vec![0; text.len()];
        one_is_not.texts.seek(SeekFrom::Start(text.start as u64)).unwrap();
        one_is_not.texts.read_exact(&mut kept).unwrap();
        assert_eq!(String::from_utf8(kept).unwrap(), changed[text.clone()]);
        let beside = one_is_not.texts.seek(SeekFrom::Start(text.start as u64 - 1));
        assert!(beside.is_ok() && one_is_not.texts.read(&mut [0]).is_err());
    }
}

/// An index, and one in which every second chart is another.
fn half_of_it_changed(charts: usize, versions: usize) -> (String, String) {
    let index = generator::generate(5, charts, versions);
    let memory = follow(&Memory::empty(), &index).memory;
    let mut cuts = sifted(&memory, &index, usize::MAX).unwrap().cuts;
    let mut changed = index.clone();
    cuts.retain(|cut| cut.items.is_some());
    for cut in cuts.iter().step_by(2).rev() {
        let text = usize::try_from(cut.text.start).unwrap()..usize::try_from(cut.text.end).unwrap();
        let other = index[text.clone()].replace("https://", "https://elsewhere.");
        changed.replace_range(text, &other);
    }
    (index, changed)
}

#[test]
fn much_that_has_changed_is_read_back_from_a_file() {
    let (index, changed) = half_of_it_changed(60, 60);
    let memory = follow(&Memory::empty(), &index).memory;
    let mut sifted = sifted(&memory, &changed, 10_000).unwrap();
    assert!(sifted.texts.kept() > 1024 * 1024, "{}", sifted.texts.kept());
    assert!(sifted.texts.is_in_a_file());
    let others: Vec<&Cut> = sifted.cuts.iter().filter(|cut| !memory.known.has(cut)).collect();
    assert!(others.len() > 20 && others.len() < 40, "{}", others.len());
    for cut in others {
        let mut kept = Vec::new();
        sifted.texts.seek(SeekFrom::Start(cut.text.start)).unwrap();
        (&mut sifted.texts)
            .take(cut.text.end - cut.text.start)
            .read_to_end(&mut kept)
            .unwrap();
        let text = usize::try_from(cut.text.start).unwrap()..usize::try_from(cut.text.end).unwrap();
        assert!(String::from_utf8(kept).unwrap() == changed[text], "{}", cut.key);
    }
    follow(&memory, &changed);
}

#[test]
fn what_has_changed_but_can_not_be_kept_is_an_error() {
    let (index, changed) = half_of_it_changed(60, 60);
    let memory = follow(&Memory::empty(), &index).memory;
    let nowhere = std::env::temp_dir().join("portolan-tests-no-such-folder");
    let take = |index: &str| {
        let known = Arc::new(memory.known.clone());
        let mut sieve = Sieve::new(known, &DecodeLimits::default(), Some(&nowhere));
        let mut pieces = index.as_bytes().chunks(10_000);
        pieces
            .try_for_each(|piece| sieve.take(piece))
            .and_then(|()| sieve.finish())
    };
    assert!(
        take(&index).unwrap().is_some(),
        "of what is known nothing is to be kept"
    );
    assert_eq!(take(&changed).map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[rstest::rstest]
#[case::yaml(generator::generate(5, 3, 3))]
#[case::json(json(&generator::generate(5, 3, 3)))]
fn it_may_come_byte_by_byte_with_a_byte_order_mark_and_blanks(#[case] index: String) {
    let memory = follow(&Memory::empty(), &index).memory;
    let keys = |index: &str, at_once| {
        let sifted = sifted(&memory, index, at_once).unwrap();
        let keys = sifted.cuts.iter().map(|cut| (cut.key.clone(), memory.known.has(cut)));
        keys.collect::<Vec<_>>()
    };
    let expected = keys(&index, usize::MAX);
    assert!(expected.iter().all(|(_, is_known)| *is_known));
    for front in ["\u{feff}", "\n", "\u{feff}\n"] {
        let index = format!("{front}{index}");
        for at_once in [1, 2, 3, 4, 7, usize::MAX] {
            assert_eq!(keys(&index, at_once), expected, "{front:?}, {at_once}");
        }
    }
}

#[rstest::rstest]
#[case::nothing("")]
#[case::one_byte("a")]
#[case::blanks_without_end(&" ".repeat(100_000))]
#[case::a_page("<html></html>")]
#[case::a_line_without_end(&format!("a: {}", "b".repeat(600_000)))]
#[case::a_text_without_end(&format!("{{\"a\": \"{}", "b".repeat(600_000)))]
#[case::json_that_does_not_end(r#"{"apiVersion":"v1","entries":{"a":[{"name":"a","version":"1"}]}"#)]
fn what_is_no_index_that_can_be_cut_is_left_to_the_whole(#[case] index: &str) {
    for at_once in [1000, 100_000, usize::MAX] {
        assert!(sifted(&Memory::empty(), index, at_once).is_none());
    }
}
