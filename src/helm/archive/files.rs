//! Which entries are files that the catalogue keeps, and their text.

use super::{ArchiveError, ChartFiles, Limits};

/// What a file is to the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Readme,
    Values,
    Schema,
    /// By its key, `values-production`.
    AdditionalValues(String),
}

impl Role {
    /// Judges by the name of an entry, as Kubeapps does: at most one folder, then one of three names in any case, or
    /// `values-SOMETHING.yaml`, in this case only and anywhere in the name. None too for names that no chart has:
    /// absolute ones and those with `..`.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let mut name = name;
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        let (folder, base) = match name.iter().position(|byte| *byte == b'/') {
            None => (None, name),
            Some(slash) => (Some(&name[..slash]), &name[slash + 1..]),
        };
        if matches!(folder, Some(b"" | b"..")) || base.contains(&b'/') {
            return None;
        }
        let named: [(&[u8], Self); 3] = [
            (b"README.md", Self::Readme),
            (b"values.yaml", Self::Values),
            (b"values.schema.json", Self::Schema),
        ];
        let exact = named.into_iter().find(|(name, _)| base.eq_ignore_ascii_case(name));
        exact
            .map(|(_, role)| role)
            .or_else(|| additional(name).map(Self::AdditionalValues))
    }

    /// What further values are found by, which is kept as well.
    fn key(&self) -> &str {
        match self {
            Self::AdditionalValues(key) => key,
            Self::Readme | Self::Values | Self::Schema => "",
        }
    }

    const fn shown(&self) -> &'static str {
        match self {
            Self::Readme => "the README.md",
            Self::Values => "the values.yaml",
            Self::Schema => "the values.schema.json",
            Self::AdditionalValues(_) => "a further file of values",
        }
    }
}

/// The first match of `values-([\w-]+)\.yaml`, of which all before `.yaml` is the key.
fn additional(name: &[u8]) -> Option<String> {
    const BEGIN: &[u8] = b"values-";
    const END: &[u8] = b".yaml";
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut rest = name;
    loop {
        let begin = rest.windows(BEGIN.len()).position(|window| window == BEGIN)?;
        rest = &rest[begin..];
        // What begins within this run of words ends with it too, so that it need not be tried.
        let length = rest.iter().take_while(|byte| is_word(byte)).count();
        let (run, behind) = rest.split_at(length);
        if length > BEGIN.len() && behind.starts_with(END) {
            return std::str::from_utf8(run).ok().map(str::to_owned);
        }
        rest = behind;
    }
}

/// Gathers the files. A later one takes the place of an earlier one.
pub(super) struct Files<'l> {
    limits: &'l Limits,
    files: ChartFiles,
    /// Bytes of the files as they are in JSON.
    kept: u64,
}

impl<'l> Files<'l> {
    pub(super) fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            files: ChartFiles::default(),
            kept: 0,
        }
    }

    /// Refuses a file by the size that its header states, before it is read.
    pub(super) fn check_size(&self, role: &Role, bytes: u64) -> Result<(), ArchiveError> {
        if bytes > self.limits.file_bytes {
            return Err(ArchiveError::too_large(role.shown(), self.limits.file_bytes));
        }
        Ok(())
    }

    pub(super) fn put(&mut self, role: Role, content: Vec<u8>) -> Result<(), ArchiveError> {
        // What is replaced goes first, so that there are never two of one.
        self.kept -= json_bytes(&self.take(&role));
        let too_large = || {
            let what = "what a catalogue keeps of the archive (README, values, schema)";
            ArchiveError::too_large(what, self.limits.kept_bytes)
        };
        let left = self.limits.kept_bytes.saturating_sub(self.kept);
        let text = text(content, usize::try_from(left).unwrap_or(usize::MAX)).ok_or_else(too_large)?;
        let added = json_bytes(&text) + role.key().len() as u64;
        if added > left {
            return Err(too_large());
        }
        self.kept += added;
        match role {
            Role::Readme => self.files.readme = text,
            Role::Values => self.files.values = text,
            Role::Schema => self.files.schema = text,
            Role::AdditionalValues(key) => {
                self.files.additional_values.insert(key, text);
            }
        }
        Ok(())
    }

    /// Takes the text out that is there by now, with what its key counts.
    fn take(&mut self, role: &Role) -> String {
        match role {
            Role::Readme => std::mem::take(&mut self.files.readme),
            Role::Values => std::mem::take(&mut self.files.values),
            Role::Schema => std::mem::take(&mut self.files.schema),
            Role::AdditionalValues(key) => match self.files.additional_values.remove(key) {
                Some(text) => {
                    self.kept -= key.len() as u64;
                    text
                }
                None => String::new(),
            },
        }
    }

    pub(super) fn finish(self) -> ChartFiles {
        self.files
    }
}

/// Bytes of a text between its quotes in JSON.
fn json_bytes(text: &str) -> u64 {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    });
    bytes.sum()
}

/// The text that Go makes of bytes when it writes them as JSON, without NUL: U+FFFD stands for each byte that is no
/// UTF-8, where Rust's own conversion has one for several. None if it has more bytes than `limit`: each that is no UTF-8
/// becomes three.
fn text(bytes: Vec<u8>, limit: usize) -> Option<String> {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => return Some(text).filter(|text| text.len() <= limit),
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len().min(limit));
    for chunk in bytes.utf8_chunks() {
        for valid in chunk.valid().split('\0') {
            if text.len() + valid.len() > limit {
                return None;
            }
            text.push_str(valid);
        }
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Some(text).filter(|text| text.len() <= limit)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("chart/README.md", Some(Role::Readme))]
    #[case("chart/readme.MD", Some(Role::Readme))]
    #[case("README.md", Some(Role::Readme))]
    #[case("./README.md", Some(Role::Readme))]
    #[case("././chart/Values.yaml", Some(Role::Values))]
    #[case("chart/values.schema.json", Some(Role::Schema))]
    #[case("chart/Chart.yaml", None)]
    #[case("chart/README.md.gotmpl", None)]
    #[case("chart/app-README.md", None)]
    #[case("chart/charts/README.md", None)]
    #[case("./chart/charts/README.md", None)]
    #[case("chart//README.md", None)]
    #[case("chart/README.md/", None)]
    #[case("/README.md", None)]
    #[case(".//README.md", None)]
    #[case("//README.md", None)]
    #[case("../README.md", None)]
    #[case("./../README.md", None)]
    #[case("../../README.md", None)]
    #[case("", None)]
    #[case("./", None)]
    #[case("/", None)]
    fn a_file_is_known_by_its_name(#[case] name: &str, #[case] role: Option<Role>) {
        assert_eq!(Role::of(name.as_bytes()), role);
    }

    #[rstest]
    #[case("chart/values-production.yaml", Some("values-production"))]
    #[case("chart/values-Dev_2-x.yaml", Some("values-Dev_2-x"))]
    #[case("values-a.yaml", Some("values-a"))]
    #[case("chart/my-values-a.yaml.bak", Some("values-a"))]
    #[case("chart/values-values-a.yaml", Some("values-values-a"))]
    #[case("chart/values-a.yml-values-b.yaml", Some("values-b"))]
    #[case("chart/values-.yaml", None)]
    #[case("chart/values--.yaml", Some("values--"))]
    #[case("chart/VALUES-a.yaml", None)]
    #[case("chart/values-a.YAML", None)]
    #[case("chart/values-a.b.yaml", None)]
    #[case("chart/values-ä.yaml", None)]
    #[case("chart/sub/values-a.yaml", None)]
    #[case("../values-a.yaml", None)]
    #[case("/values-a.yaml", None)]
    fn further_values_have_the_key_that_kubeapps_gives(#[case] name: &str, #[case] key: Option<&str>) {
        assert_eq!(
            Role::of(name.as_bytes()),
            key.map(|key| Role::AdditionalValues(key.to_owned()))
        );
    }

    #[test]
    fn bytes_become_the_text_that_go_writes() {
        let go = |bytes: &[u8]| text(bytes.to_vec(), usize::MAX).unwrap();
        assert_eq!(go(b"\xef\xbb\xbfa: 1\r\n"), "\u{feff}a: 1\r\n");
        assert_eq!(go(b"a\0b\0\0c\0"), "abc");
        assert_eq!(go(b"a\xe2\x82b\xff"), "a\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(go(b"\xed\xa0\x80"), "\u{fffd}\u{fffd}\u{fffd}");
    }

    #[rstest]
    #[case::plain(b"abcdef")]
    #[case::with_nul(b"abc\0def")]
    #[case::invalid(b"abc\xff")]
    #[case::invalid_alone(b"\xff\xff")]
    fn a_text_is_given_up_as_soon_as_it_is_too_long(#[case] bytes: &[u8]) {
        assert_eq!(text(bytes.to_vec(), 6).map(|text| text.len()), Some(6));
        assert_eq!(text(bytes.to_vec(), 5), None);
    }

    #[test]
    fn a_text_counts_as_it_is_written_in_json() {
        let all: String = ('\u{1}'..'\u{200}').collect();
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(json_bytes(&all), json.len() as u64 - 2);
    }

    #[test]
    fn what_is_kept_is_bounded_as_json() {
        let limits = Limits {
            kept_bytes: 600,
            ..Limits::default()
        };
        let mut files = Files::new(&limits);
        for _ in 0..3 {
            files.put(Role::Values, vec![1; 100]).unwrap();
        }
        assert!(files.put(Role::Readme, vec![1]).is_err());
    }

    #[test]
    fn a_name_that_almost_matches_all_along_costs_one_pass() {
        let name = b"values-".repeat(150_000);
        assert_eq!(Role::of(&name), None);
    }
}
