use std::fmt;
use std::ops::Range;

/// A CUE text with a template in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CueSource {
    text: String,
    /// The bytes of the template. Errors name its lines.
    template: Range<usize>,
    /// The name of the template's definition, for logs.
    definition: String,
    /// The kind of the definition, for metrics; `None` for templates of a status, of a config, and for texts.
    kind: Option<&'static str>,
}

/// The lines of a text that are the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct TemplateLines {
    /// From 1.
    pub first: usize,
    pub count: usize,
}

impl CueSource {
    pub(super) fn of_template(template: &str) -> Self {
        let mut source = Self::default();
        source.push_template(template);
        source
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn definition(&self) -> &str {
        &self.definition
    }

    #[must_use]
    pub fn of_definition(self, name: &str) -> Self {
        Self {
            definition: name.to_owned(),
            ..self
        }
    }

    #[must_use]
    pub fn of_kind(self, kind: &'static str) -> Self {
        Self {
            kind: Some(kind),
            ..self
        }
    }

    pub(super) fn kind(&self) -> Option<&'static str> {
        self.kind
    }

    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends the template.
    pub fn push_template(&mut self, template: &str) {
        let start = self.text.len();
        self.text.push_str(template);
        self.template = start..self.text.len();
    }

    pub(super) fn template(&self) -> &str {
        self.text.get(self.template.clone()).unwrap_or_default()
    }

    pub(super) fn template_lines(&self) -> Option<TemplateLines> {
        let before = self.text.get(..self.template.start)?;
        let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (!self.template.is_empty()).then(|| TemplateLines {
            first: lines(before),
            count: lines(self.template()),
        })
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A text without a template.
impl<T: Into<String>> From<T> for CueSource {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

impl fmt::Write for CueSource {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_found_by_its_lines() {
        let mut source = CueSource::from("import \"list\"\nt: {\n");
        source.push_template("a: 1\nb: 2\n");
        source.push_str("\n}\n");
        assert_eq!(source.template(), "a: 1\nb: 2\n");
        assert_eq!(source.template_lines(), Some(TemplateLines { first: 3, count: 3 }));
        assert_eq!(CueSource::from("a: 1").template_lines(), None);
    }
}
