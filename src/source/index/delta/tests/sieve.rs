//! What is kept of an index that is cut while it comes. That the same comes of it is seen wherever the delta is.

use std::sync::Arc;

use super::*;

fn sifted(memory: &Memory, index: &str, at_once: usize) -> Option<Sifted> {
    let mut sieve = Sieve::new(Arc::new(memory.known.clone()), &DecodeLimits::default(), None);
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
