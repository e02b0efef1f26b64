use super::{ArchiveError, ArchiveFiles, ArchiveLimits};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileRole {
    Readme,
    Values,
    Schema,
    AdditionalValues(String),
}

impl FileRole {
    /// Matches an entry name by Kubeapps' rules: at most one directory, then one of three names in any case, or
    /// `values-SOMETHING.yaml` in exactly this case. Absolute paths and paths with `..` never match.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let base = base_name(name)?;
        let named: [(&[u8], Self); 3] = [
            (b"README.md", Self::Readme),
            (b"values.yaml", Self::Values),
            (b"values.schema.json", Self::Schema),
        ];
        let exact = named.into_iter().find(|(name, _)| base.eq_ignore_ascii_case(name));
        exact
            .map(|(_, role)| role)
            .or_else(|| additional_values_key(name).map(Self::AdditionalValues))
    }

    fn key(&self) -> &str {
        match self {
            Self::AdditionalValues(key) => key,
            Self::Readme | Self::Values | Self::Schema => "",
        }
    }

    const fn describe(&self) -> &'static str {
        match self {
            Self::Readme => "the README.md",
            Self::Values => "the values.yaml",
            Self::Schema => "the values.schema.json",
            Self::AdditionalValues(_) => "an additional values file",
        }
    }
}

/// Returns the name of a file that is at most one directory deep, after a leading `./` is removed.
pub(super) fn base_name(mut name: &[u8]) -> Option<&[u8]> {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    let (directory, base) = match name.iter().position(|byte| *byte == b'/') {
        None => (None, name),
        Some(slash) => (Some(&name[..slash]), &name[slash + 1..]),
    };
    let is_outside = matches!(directory, Some(b"" | b".."));
    (!is_outside && !base.contains(&b'/')).then_some(base)
}

/// Returns the first match of `values-([\w-]+)\.yaml`, without `.yaml`.
fn additional_values_key(name: &[u8]) -> Option<String> {
    const BEGIN: &[u8] = b"values-";
    const END: &[u8] = b".yaml";
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut rest = name;
    loop {
        let begin = rest.windows(BEGIN.len()).position(|window| window == BEGIN)?;
        rest = &rest[begin..];
        // A match that starts inside this run would also end with it, so skip the run.
        let length = rest.iter().take_while(|byte| is_word(byte)).count();
        let (run, after) = rest.split_at(length);
        if length > BEGIN.len() && after.starts_with(END) {
            return std::str::from_utf8(run).ok().map(str::to_owned);
        }
        rest = after;
    }
}

pub(super) struct FileCollector<'l> {
    limits: &'l ArchiveLimits,
    files: ArchiveFiles,
    /// Size of the collected files as JSON strings.
    kept: u64,
}

impl<'l> FileCollector<'l> {
    pub(super) fn new(limits: &'l ArchiveLimits) -> Self {
        Self {
            limits,
            files: ArchiveFiles::default(),
            kept: 0,
        }
    }

    pub(super) fn check_size(&self, role: &FileRole, bytes: u64) -> Result<(), ArchiveError> {
        if bytes > self.limits.file_bytes {
            return Err(ArchiveError::too_large(role.describe(), self.limits.file_bytes));
        }
        Ok(())
    }

    pub(super) fn put(&mut self, role: FileRole, content: Vec<u8>) -> Result<(), ArchiveError> {
        // Remove the replaced file first, so that both are never in memory.
        self.kept -= json_bytes(&self.take(&role));
        let too_large = || {
            let what = "the README, values and schema of the archive";
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
            FileRole::Readme => self.files.readme = text,
            FileRole::Values => self.files.values = text,
            FileRole::Schema => self.files.schema = text,
            FileRole::AdditionalValues(key) => {
                self.files.additional_values.insert(key, text);
            }
        }
        Ok(())
    }

    fn take(&mut self, role: &FileRole) -> String {
        match role {
            FileRole::Readme => std::mem::take(&mut self.files.readme),
            FileRole::Values => std::mem::take(&mut self.files.values),
            FileRole::Schema => std::mem::take(&mut self.files.schema),
            FileRole::AdditionalValues(key) => match self.files.additional_values.remove(key) {
                Some(text) => {
                    self.kept -= key.len() as u64;
                    text
                }
                None => String::new(),
            },
        }
    }

    pub(super) fn finish(self) -> ArchiveFiles {
        self.files
    }
}

/// Returns the length of the text as a JSON string, without the quotes.
fn json_bytes(text: &str) -> u64 {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    });
    bytes.sum()
}

/// Converts bytes to text as Go's JSON encoder does, without NUL: each invalid byte becomes U+FFFD, while Rust replaces
/// a padded sequence. Returns None if the result exceeds `limit` bytes.
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
    #[case("chart/README.md", Some(FileRole::Readme))]
    #[case("chart/readme.MD", Some(FileRole::Readme))]
    #[case("README.md", Some(FileRole::Readme))]
    #[case("./README.md", Some(FileRole::Readme))]
    #[case("././chart/Values.yaml", Some(FileRole::Values))]
    #[case("chart/values.schema.json", Some(FileRole::Schema))]
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
    fn files_are_matched_by_name(#[case] name: &str, #[case] role: Option<FileRole>) {
        assert_eq!(FileRole::of(name.as_bytes()), role);
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
    fn additional_values_have_the_same_keys_as_in_kubeapps(#[case] name: &str, #[case] key: Option<&str>) {
        assert_eq!(
            FileRole::of(name.as_bytes()),
            key.map(|key| FileRole::AdditionalValues(key.to_owned()))
        );
    }

    #[test]
    fn bytes_become_the_same_text_as_in_go() {
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
    fn a_text_is_rejected_as_soon_as_it_is_too_long(#[case] bytes: &[u8]) {
        assert_eq!(text(bytes.to_vec(), 6).map(|text| text.len()), Some(6));
        assert_eq!(text(bytes.to_vec(), 5), None);
    }

    #[test]
    fn a_text_counts_with_its_length_in_json() {
        let all: String = ('\u{1}'..'\u{200}').collect();
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(json_bytes(&all), json.len() as u64 - 2);
    }

    #[test]
    fn the_extracted_files_are_limited_by_their_json_size() {
        let limits = ArchiveLimits {
            kept_bytes: 600,
            ..ArchiveLimits::default()
        };
        let mut files = FileCollector::new(&limits);
        for _ in 0..3 {
            files.put(FileRole::Values, vec![1; 100]).unwrap();
        }
        assert!(files.put(FileRole::Readme, vec![1]).is_err());
    }

    #[test]
    fn a_name_with_many_partial_matches_takes_linear_time() {
        let name = b"values-".repeat(150_000);
        assert_eq!(FileRole::of(&name), None);
    }
}
