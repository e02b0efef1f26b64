use crate::cmd::output::{self, cell};
use crate::releases::{JudgedRelease, Match, RepositoryName};

const HEADER: &str = "NAMESPACE RELEASE CHART VERSION STATUS NEWEST REPOSITORY";
const WIDE_HEADER: &str =
    "NAMESPACE RELEASE KIND REVISION STATE CHART VERSION STATUS PATCH MINOR MAJOR MATCH REPOSITORIES";

fn lines(header: &str, releases: &[JudgedRelease], row: impl Fn(&JudgedRelease) -> Vec<String>) -> String {
    let header: Vec<&str> = header.split(' ').collect();
    output::table(&header, releases.iter().map(row))
}

/// Formats a line for each release, with its largest step to a newer version.
pub fn table(releases: &[JudgedRelease]) -> String {
    let row = |judged: &JudgedRelease| {
        let release = &judged.release;
        vec![
            release.namespace.clone(),
            release.name.clone(),
            cell(&release.chart.name),
            cell(&release.chart.version),
            status(judged),
            newest(judged),
            repository(judged),
        ]
    };
    lines(HEADER, releases, row)
}

/// Formats a line for each release, with all steps and all repositories.
pub fn wide_table(releases: &[JudgedRelease]) -> String {
    let row = |judged: &JudgedRelease| {
        let JudgedRelease { release, judgement } = judged;
        let revision = release.revision.map(|revision| revision.to_string());
        let verdict = judgement.verdict.as_ref();
        let repositories: Vec<String> = judgement.repositories.iter().map(RepositoryName::to_string).collect();
        vec![
            release.namespace.clone(),
            release.name.clone(),
            release.kind.to_string(),
            optional(revision.as_deref()),
            cell(&release.state.to_string()),
            cell(&release.chart.name),
            cell(&release.chart.version),
            status(judged),
            optional(verdict.and_then(|verdict| verdict.newest_patch.as_deref())),
            optional(verdict.and_then(|verdict| verdict.newest_minor.as_deref())),
            optional(verdict.and_then(|verdict| verdict.newest_major.as_deref())),
            judgement.matched.to_string(),
            match repositories.as_slice() {
                [] => "-".to_owned(),
                all => all.join(","),
            },
        ]
    };
    lines(WIDE_HEADER, releases, row)
}

fn optional(text: Option<&str>) -> String {
    cell(text.unwrap_or_default())
}

/// Returns one word, for `awk`.
fn status(judged: &JudgedRelease) -> String {
    let JudgedRelease { release, judgement } = judged;
    let status = match (&judgement.verdict, judgement.matched) {
        _ if !release.is_deployed() => release.state.to_string(),
        (Some(verdict), _) if verdict.deprecated => format!("{},deprecated", verdict.status),
        (Some(verdict), _) => verdict.status.to_string(),
        (None, Match::Ambiguous | Match::Unknown) => judgement.matched.to_string(),
        (None, _) => "invalid-version".to_owned(),
    };
    cell(&status.replace(' ', "-"))
}

fn newest(judged: &JudgedRelease) -> String {
    let newest = judged.judgement.verdict.as_ref().and_then(|verdict| {
        let newest = [&verdict.newest_major, &verdict.newest_minor, &verdict.newest_patch];
        newest.into_iter().find_map(Option::as_deref)
    });
    optional(newest)
}

fn repository(judged: &JudgedRelease) -> String {
    let judgement = &judged.judgement;
    match judgement.repositories.as_slice() {
        [] => "-".to_owned(),
        all if judgement.matched == Match::Ambiguous => format!("one of {}", all.len()),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(state: &str, matched: &str, repositories: &[&str], verdict: &Value) -> JudgedRelease {
        let repositories: Vec<RepositoryName> = repositories.iter().map(|name| name.parse().unwrap()).collect();
        let release = json!({
            "kind": "helm", "namespace": "shop", "name": "web", "state": state, "revision": 3,
            "chart": { "name": "nginx", "version": "1.2.3" },
            "matched": matched, "repositories": repositories, "verdict": verdict,
        });
        serde_json::from_value(release).unwrap()
    }

    fn verdict(status: &str, major: Option<&str>) -> Value {
        json!({
            "status": status, "newestPatch": null, "newestMinor": "1.3.0", "newestMajor": major, "deprecated": false,
        })
    }

    fn words(text: &str) -> Vec<&str> {
        text.lines().nth(1).unwrap().split_whitespace().collect()
    }

    #[test]
    fn a_release_is_one_line_with_its_newest_version() {
        let text = table(&[judged(
            "deployed",
            "exact",
            &["team/stable"],
            &verdict("major", Some("2.0.0")),
        )]);
        assert_eq!(
            words(&text),
            ["shop", "web", "nginx", "1.2.3", "major", "2.0.0", "team/stable"]
        );
        let text = table(&[judged(
            "deployed",
            "likely",
            &["a/x", "b/y"],
            &verdict("notListed", None),
        )]);
        assert_eq!(words(&text)[4..], ["not-listed", "1.3.0", "a/x", "and", "1", "more"]);
    }

    #[test]
    fn a_release_without_a_verdict_says_why() {
        let status = |state, matched| {
            let text = table(&[judged(state, matched, &[], &Value::Null)]);
            words(&text)[4].to_owned()
        };
        assert_eq!(status("failed", "unknown"), "failed");
        assert_eq!(status("deployed", "unknown"), "unknown");
        assert_eq!(status("deployed", "ambiguous"), "ambiguous");
        assert_eq!(status("deployed", "exact"), "invalid-version");
    }

    #[test]
    fn the_wide_table_names_all_repositories_of_an_ambiguous_chart() {
        let releases = [judged("deployed", "ambiguous", &["a/x", "b/y"], &Value::Null)];
        assert_eq!(words(&table(&releases))[4..], ["ambiguous", "-", "one", "of", "2"]);
        let text = wide_table(&releases);
        assert_eq!(
            words(&text)[2..],
            [
                "Helm",
                "3",
                "deployed",
                "nginx",
                "1.2.3",
                "ambiguous",
                "-",
                "-",
                "-",
                "ambiguous",
                "a/x,b/y"
            ]
        );
    }

    #[test]
    fn a_deprecated_chart_is_marked() {
        let mut verdict = verdict("current", None);
        verdict["deprecated"] = true.into();
        let text = table(&[judged("deployed", "exact", &["a/x"], &verdict)]);
        assert_eq!(words(&text)[4], "current,deprecated");
    }

    #[test]
    fn names_of_charts_do_not_control_the_terminal() {
        let mut hostile = judged("deployed", "unknown", &[], &Value::Null);
        hostile.release.chart.name = "x\u{1b}[2J\nforged".to_owned();
        for text in [table(&[hostile.clone()]), wide_table(&[hostile.clone()])] {
            assert!(!text.contains('\u{1b}') && text.lines().count() == 2, "{text:?}");
        }
    }
}
