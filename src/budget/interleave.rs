use std::collections::HashMap;

/// Returns items in the order of their rank within their namespace: the first of each, the second of each, and so on.
///
/// If a limit cuts the list, a namespace with many items leaves room for others.
#[must_use]
pub fn interleave<'a, T>(items: impl IntoIterator<Item = (&'a str, T)>) -> Vec<T> {
    let mut ranks = HashMap::<&str, usize>::new();
    let ranked = items.into_iter().map(|(namespace, item)| {
        let rank = ranks.entry(namespace).or_default();
        *rank += 1;
        (*rank, item)
    });
    let mut ranked: Vec<(usize, T)> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_items_of_all_namespaces_precede_the_second_ones() {
        let names = ["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"];
        let items = names.iter().filter_map(|name| Some((name.split_once('/')?.0, *name)));
        assert_eq!(interleave(items), ["a/1", "b/1", "c/1", "a/2", "c/2", "a/3"]);
    }
}
