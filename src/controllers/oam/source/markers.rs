//! Turns the markers above a field, and open lists, into a sibling of the field.

use super::declarations::{Ending, FieldLabel, FieldPlace, Parser, Region};
use super::{Edit, MARKER, SyntaxError};

impl<'a> Parser<'a> {
    /// Records the sibling of a field with markers or with an open list as its value.
    pub(super) fn mark(
        &mut self,
        place: FieldPlace,
        start: usize,
        chain: &[FieldLabel],
        value: usize,
        ending: Ending,
    ) -> Result<(), SyntaxError> {
        let (Some((last, prefix)), Some(first_token)) = (chain.split_last(), self.token(start)) else {
            return Ok(());
        };
        let label = &self.source[last.start..last.end];
        let is_hidden = label.starts_with(['_', '#']) && !label.ends_with(['"', '\'', '#']);
        if is_hidden || chain.iter().any(|label| label.is_optional) {
            return Ok(());
        }
        let mut markers = if place.allows_markers {
            self.markers_above(first_token.start)
        } else {
            Vec::new()
        };
        let has_markers = !markers.is_empty();
        if ending != Ending::Closed && matches!(place.region, Region::Patch | Region::PatchOutputs) {
            markers.push(("open", "true"));
        }
        if markers.is_empty() {
            return Ok(());
        }
        let Some(sibling) = sibling(label, last.is_literal) else {
            if !has_markers {
                return Ok(());
            }
            let message = format!("a patch marker needs a field with a name, not {label}");
            return Err(SyntaxError::at(self.source, last.start, message));
        };
        let mut text: String = prefix
            .iter()
            .flat_map(|label| [&self.source[label.start..label.end], ": "])
            .collect();
        text.push_str(&format!("{sibling}: {}, ", object(&markers)));
        let edit = Edit {
            start: first_token.start,
            end: first_token.start,
            text,
        };
        match place.region {
            _ if has_markers => self.markers.push(edit),
            Region::PatchOutputs => self.open_in_outputs.push(edit),
            _ => self.open_in_patch.push(edit),
        }
        // A marked list of nothing but a constraint keeps it: there is nothing to align.
        if has_markers && ending != (Ending::Constrained { is_only: true }) {
            self.marked_values.extend(self.replacement(value));
        }
        Ok(())
    }

    /// Replaces the value from this token to the current one by `_`.
    fn replacement(&self, value: usize) -> Option<Edit> {
        let start = self.token(value)?.start;
        let end = self.token(self.at.checked_sub(1)?)?.end;
        (start < end).then(|| Edit {
            start,
            end,
            text: "_".to_owned(),
        })
    }

    /// Returns the markers in the comment lines directly above a position.
    fn markers_above(&self, position: usize) -> Vec<(&'a str, &'a str)> {
        let mut markers = Vec::new();
        let mut below = position;
        let count = self.comments.partition_point(|comment| comment.start < position);
        for comment in self.comments[..count].iter().rev() {
            let gap = &self.source[comment.end..below];
            if !comment.is_alone || !gap.trim().is_empty() || gap.matches('\n').count() != 1 {
                break;
            }
            markers.extend(marker(&self.source[comment.start..comment.end]));
            below = comment.start;
        }
        // The last marker of a name counts, as in the original.
        let mut unique: Vec<(&str, &str)> = Vec::new();
        for (name, value) in markers {
            if !unique.iter().any(|(other, _)| *other == name) {
                unique.push((name, value));
            }
        }
        unique
    }
}

/// Returns the name and value of a marker in a comment.
fn marker(comment: &str) -> Option<(&str, &str)> {
    let (name, value) = comment
        .trim_start_matches('/')
        .trim()
        .strip_prefix('+')?
        .split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_known = matches!(name, "patchKey" | "patchStrategy");
    (is_known && !value.is_empty() && !value.contains(char::is_whitespace)).then_some((name, value))
}

/// Returns the label for the markers of a field, if the field's label is a literal.
fn sibling(label: &str, is_literal: bool) -> Option<String> {
    if !is_literal {
        return None;
    }
    let Some(quote) = label.find(['"', '\'']) else {
        return Some(format!("\"{MARKER}{label}\""));
    };
    Some(format!("{}{MARKER}{}", &label[..=quote], &label[quote + 1..]))
}

fn object(markers: &[(&str, &str)]) -> String {
    let fields: Vec<String> = markers
        .iter()
        .map(|(name, value)| format!("{name}: {}", serde_json::Value::from(*value)))
        .collect();
    format!("{{{}}}", fields.join(", "))
}
