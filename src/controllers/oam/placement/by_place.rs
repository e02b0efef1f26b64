use std::collections::HashMap;

use super::Place;

/// Deployed components in order, each once at each of its places.
pub struct ByPlace<T> {
    items: Vec<T>,
    positions: HashMap<(String, Place), usize>,
}

impl<T> Default for ByPlace<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            positions: HashMap::new(),
        }
    }
}

impl<T> ByPlace<T> {
    /// Adds a component. A later step deploys the same objects again, so that its component replaces the former one.
    pub fn insert(&mut self, name: String, place: Place, item: T) {
        let position = self.positions.entry((name, place));
        let position = *position.or_insert(self.items.len());
        match self.items.get_mut(position) {
            Some(former) => *former = item,
            None => self.items.push(item),
        }
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_component_replaces_the_one_with_the_same_name_and_place() {
        let place = |namespace: &str| Place {
            namespace: namespace.to_owned(),
            ..Place::default()
        };
        let mut placed = ByPlace::default();
        for (name, namespace, item) in [("web", "", 1), ("db", "", 2), ("web", "prod", 3), ("web", "", 4)] {
            placed.insert(name.to_owned(), place(namespace), item);
        }
        assert_eq!(placed.into_vec(), [4, 2, 3]);
    }
}
