use std::fmt::{self, Display};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GarbageKind {
    /// Rows of repositories that no AppRepository declares.
    Repositories,
    /// Files without a version.
    Files,
    /// Sync history past its limit.
    History,
    /// Our rows of repositories without a record.
    Rows,
    CronJobs,
    Jobs,
    Secrets,
    Leases,
}

impl GarbageKind {
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Repositories => "repositories",
            Self::Files => "files",
            Self::History => "history",
            Self::Rows => "rows",
            Self::CronJobs => "cronjobs",
            Self::Jobs => "jobs",
            Self::Secrets => "secrets",
            Self::Leases => "leases",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Repositories => "repositories that are no longer declared",
            Self::Files => "chart files without a version",
            Self::History => "entries of the sync history past its limit",
            Self::Rows => "rows without a repository",
            Self::CronJobs => "CronJobs of deleted repositories",
            Self::Jobs => "finished Jobs of deleted repositories",
            Self::Secrets => "copies of Secrets of deleted repositories",
            Self::Leases => "expired Leases",
        }
    }
}

/// The garbage that a collector found. It was removed, unless the collection was a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    pub kind: GarbageKind,
    pub count: u64,
    /// Names, for the log and dry runs; empty for rows.
    pub names: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GarbageReport {
    pub garbage: Vec<Garbage>,
    pub failures: Vec<(GarbageKind, String)>,
    /// A reason why deleted repositories and their objects were not looked for.
    pub skipped: Option<String>,
}

impl GarbageReport {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.garbage.is_empty()
    }

    pub(super) fn add(&mut self, kind: GarbageKind, count: u64, names: Vec<String>) {
        if count > 0 {
            self.garbage.push(Garbage { kind, count, names });
        }
    }

    pub fn set(&mut self, kind: GarbageKind, names: Vec<String>) {
        let position = self.garbage.iter().position(|garbage| garbage.kind == kind);
        let at = position.unwrap_or(self.garbage.len());
        self.garbage.retain(|garbage| garbage.kind != kind);
        let count = names.len() as u64;
        if count > 0 {
            self.garbage.insert(at, Garbage { kind, count, names });
        }
    }

    #[must_use]
    pub fn count(&self, kind: GarbageKind) -> u64 {
        let of_kind = self.garbage.iter().filter(|garbage| garbage.kind == kind);
        of_kind.map(|garbage| garbage.count).sum()
    }
}

impl Display for GarbageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(f, "nothing");
        }
        for (at, Garbage { kind, count, .. }) in self.garbage.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {}", kind.text())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_kind_with_its_count() {
        let mut report = GarbageReport::default();
        assert_eq!(report.to_string(), "nothing");
        report.add(GarbageKind::Files, 0, Vec::new());
        assert!(report.is_empty());
        report.add(
            GarbageKind::Repositories,
            2,
            vec!["team/a".to_owned(), "team/b".to_owned()],
        );
        report.add(GarbageKind::Leases, 1, Vec::new());
        assert_eq!(
            report.to_string(),
            "2 repositories that are no longer declared, 1 expired Leases"
        );
        assert_eq!(
            (report.count(GarbageKind::Leases), report.count(GarbageKind::Jobs)),
            (1, 0)
        );
        report.set(GarbageKind::Repositories, vec!["team/a".to_owned()]);
        assert_eq!(
            report.to_string(),
            "1 repositories that are no longer declared, 1 expired Leases"
        );
    }
}
