//! Templates for older versions of CUE. Each is logged once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use super::CueSource;

/// Number of templates that are remembered. All are forgotten together.
const MAX_LOGGED: usize = 1_000;

#[derive(Default)]
pub(super) struct RewrittenTemplates(Mutex<HashSet<RewrittenTemplate>>);

/// Made for each evaluation, which takes the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct RewrittenTemplate {
    definition: String,
    hash: u64,
}

impl RewrittenTemplate {
    pub(super) fn of(source: &CueSource) -> Self {
        let mut hasher = DefaultHasher::new();
        source.template().hash(&mut hasher);
        Self {
            definition: source.definition().to_owned(),
            hash: hasher.finish(),
        }
    }
}

impl RewrittenTemplates {
    /// The namespace is that of the Application.
    pub(super) fn log(&self, namespace: &str, template: RewrittenTemplate) {
        if self.is_new(&template) {
            tracing::info!(
                namespace,
                definition = template.definition,
                "template is for an older version of CUE, replacing its + and * on lists when it is evaluated"
            );
        }
    }

    fn is_new(&self, template: &RewrittenTemplate) -> bool {
        let mut logged = self.0.lock();
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        // Conditions and expressions have no definition.
        !template.definition.is_empty() && logged.insert(template.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_new_once_and_again_with_another_text() {
        let template = |definition: &str, text: &str| {
            let mut source = CueSource::default();
            source.push_template(text);
            source.push_str("parameter: 1");
            RewrittenTemplate::of(&source.of_definition(definition))
        };
        let templates = RewrittenTemplates::default();
        for (definition, text, expected) in [
            ("env", "a", true),
            ("env", "a", false),
            ("other", "a", true),
            ("env", "b", true),
        ] {
            let is_new = templates.is_new(&template(definition, text));
            assert_eq!(is_new, expected, "{definition} {text}");
        }
        assert!(!templates.is_new(&template("", "a")));
        for number in 0..MAX_LOGGED {
            assert!(templates.is_new(&template(&number.to_string(), "a")));
        }
        assert!(templates.0.lock().len() <= MAX_LOGGED);
    }
}
