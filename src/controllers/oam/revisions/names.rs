//! Names of revisions: `<application>-v<number>`.

#[must_use]
pub fn revision_name(application: &str, number: i64) -> String {
    format!("{application}-v{number}")
}

#[must_use]
pub fn revision_number(name: &str) -> Option<i64> {
    let (_, version) = name.rsplit_once('-')?;
    let number = version.strip_prefix('v')?;
    // `parse` alone would accept a sign.
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

#[must_use]
pub fn is_revision_of(application: &str, name: &str) -> bool {
    let number = name.strip_prefix(application).and_then(|rest| rest.strip_prefix("-v"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Greater than all existing numbers: after an older revision became current again, the next one overwrites no other.
#[must_use]
pub fn next_number<'a>(latest: Option<i64>, existing: impl IntoIterator<Item = &'a str>) -> i64 {
    let existing = existing.into_iter().filter_map(revision_number);
    let newest = existing.chain(latest).max().unwrap_or(0);
    newest.max(0).saturating_add(1)
}
