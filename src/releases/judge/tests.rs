use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::releases::Status;

const HOME: &str = "https://home.example";

fn installed(version: &str) -> InstalledChart {
    InstalledChart {
        name: "web".to_owned(),
        version: version.to_owned(),
        home: Some(HOME.to_owned()),
        ..InstalledChart::default()
    }
}

fn candidate(repository: &str, versions: &[&str]) -> Candidate {
    let listed = |version: &&str| ListedVersion {
        version: (*version).to_owned(),
        digest: None,
    };
    Candidate {
        namespace: "team".to_owned(),
        repository: repository.to_owned(),
        url: format!("https://{repository}.example/charts"),
        chart: "web".to_owned(),
        home: Some(HOME.to_owned()),
        versions: versions.iter().map(listed).collect(),
        ..Candidate::default()
    }
}

fn without_home(mut candidate: Candidate) -> Candidate {
    candidate.home = None;
    candidate
}

fn with_digest(mut candidate: Candidate, version: &str, digest: &str) -> Candidate {
    for listed in &mut candidate.versions {
        if listed.version == version {
            listed.digest = Some(digest.to_owned());
        }
    }
    candidate
}

fn judge_simply(installed: &InstalledChart, candidates: &[Candidate]) -> Judgement {
    judge(installed, candidates, &JudgeOptions::default())
}

fn names(judgement: &Judgement) -> Vec<String> {
    judgement.repositories.iter().map(ToString::to_string).collect()
}

fn verdict_of(installed: &InstalledChart, candidate: Candidate) -> Verdict {
    judge_simply(installed, &[candidate]).verdict.unwrap()
}

fn newest(verdict: &Verdict) -> [Option<&str>; 3] {
    [&verdict.newest_patch, &verdict.newest_minor, &verdict.newest_major].map(Option::as_deref)
}

#[test]
fn the_newest_patch_minor_and_major_are_found() {
    let listed = candidate(
        "up",
        &[
            "2.1.0", "2.0.0", "1.10.0", "1.9.0", "1.2.10", "1.2.9", "1.2.3", "1.2.0", "junk",
        ],
    );
    let verdict = verdict_of(&installed("1.2.3"), listed);
    assert_eq!(newest(&verdict), [Some("1.2.10"), Some("1.10.0"), Some("2.1.0")]);
    assert_eq!(verdict.status, Status::Major);
}

#[rstest]
#[case::current(&["1.2.3", "1.2.2", "1.3.0-rc.1"], Status::Current)]
#[case::patch(&["1.2.3", "1.2.4"], Status::Patch)]
#[case::minor(&["1.2.3", "1.2.4", "1.3.0"], Status::Minor)]
#[case::withdrawn(&["1.2.2", "1.2.4"], Status::Withdrawn)]
#[case::before_the_list(&["1.2.4", "2.0.0"], Status::NotListed)]
#[case::after_the_list(&["1.2.2"], Status::NotListed)]
fn the_status_is_the_worst_that_is_true(#[case] versions: &[&str], #[case] status: Status) {
    assert_eq!(
        verdict_of(&installed("1.2.3"), candidate("up", versions)).status,
        status
    );
}

#[test]
fn a_version_is_not_withdrawn_from_a_filtered_list() {
    let mut filtered = candidate("up", &["1.2.2", "1.2.4"]);
    filtered.filtered = true;
    let verdict = verdict_of(&installed("1.2.3"), filtered);
    assert_eq!(
        (verdict.status, verdict.newest_patch.as_deref()),
        (Status::NotListed, Some("1.2.4"))
    );
}

#[test]
fn prereleases_count_for_prereleases_or_on_request() {
    let versions = ["1.2.4-rc.2", "1.2.4-rc.1", "1.2.3"];
    let listed = [candidate("up", &versions)];
    assert_eq!(
        judge_simply(&installed("1.2.3"), &listed).verdict.unwrap().status,
        Status::Current
    );
    let devel = JudgeOptions {
        devel: true,
        ..JudgeOptions::default()
    };
    let verdict = judge(&installed("1.2.3"), &listed, &devel).verdict.unwrap();
    assert_eq!(newest(&verdict), [Some("1.2.4-rc.2"), None, None]);
    let verdict = verdict_of(&installed("1.2.4-rc.1"), candidate("up", &versions));
    assert_eq!(newest(&verdict), [Some("1.2.4-rc.2"), None, None]);
}

#[rstest]
#[case("v1.2.3", "1.2.3")]
#[case("1.2.3", "v1.2.3")]
#[case("1.2.3+b1", "1.2.3_b1")]
fn spellings_of_a_version_are_equal(#[case] version: &str, #[case] listed: &str) {
    assert_eq!(
        verdict_of(&installed(version), candidate("up", &[listed])).status,
        Status::Current
    );
}

#[test]
fn a_version_that_helm_does_not_accept_has_no_verdict() {
    let judgement = judge_simply(&installed("latest"), &[candidate("up", &["latest", "1.0.0"])]);
    assert_eq!((judgement.matched, judgement.verdict), (Match::Likely, None));
}

#[test]
fn a_deprecated_chart_is_named() {
    let mut deprecated = candidate("up", &["1.2.3"]);
    deprecated.deprecated = true;
    assert!(verdict_of(&installed("1.2.3"), deprecated).deprecated);
}

#[rstest]
#[case("https://up.example/charts", "https://UP.example:443/charts/index.yaml")]
#[case("https://up.example/charts/", "https://me:hush@up.example/charts?token=hush")]
#[case("https://up.example/charts", "oci://up.example/charts")]
#[case("oci://docker.io/library", "oci://registry-1.docker.io/library/web")]
#[case("oci://up.example:443/charts", "oci://up.example/charts/web")]
fn the_declared_url_is_exact_evidence(#[case] url: &str, #[case] declared: &str) {
    let mut declares = installed("1.2.3");
    declares.url = Some(declared.to_owned());
    let mut right = without_home(candidate("right", &["1.0.0"]));
    right.url = url.to_owned();
    let judgement = judge_simply(&declares, &[candidate("other", &["1.2.3"]), right]);
    assert_eq!(
        (judgement.matched, names(&judgement)),
        (Match::Exact, vec!["team/right".to_owned()])
    );
}

#[rstest]
#[case("https://up.example/charts", "https://up.example/charts/web")]
#[case("https://up.example/charts", "https://up.example/charts2")]
#[case("https://up.example/charts", "https://up.example:8443/charts")]
#[case("oci://up.example/charts", "oci://up.example/charts/other")]
#[case("", "no url")]
fn another_url_is_no_evidence(#[case] url: &str, #[case] declared: &str) {
    let mut declares = installed("1.2.3");
    declares.url = Some(declared.to_owned());
    let mut listed = candidate("up", &["1.2.3"]);
    listed.url = url.to_owned();
    assert_eq!(judge_simply(&declares, &[listed]).matched, Match::Likely);
}

#[test]
fn a_listed_version_with_an_equal_link_is_likely() {
    let mut chart = installed("1.2.3");
    chart.home = None;
    chart.sources = vec!["https://git.example/web/".to_owned()];
    let mut listed = without_home(candidate("up", &["1.2.3"]));
    listed.sources = vec!["https://git.example".to_owned(), "https://git.example/web".to_owned()];
    assert_eq!(judge_simply(&chart, &[listed.clone()]).matched, Match::Likely);
    chart.sources.clear();
    assert_eq!(judge_simply(&chart, &[listed.clone()]).matched, Match::Possible);
    chart.digest = Some("sha256:AB".to_owned());
    let listed = with_digest(listed, "1.2.3", "ab");
    assert_eq!(judge_simply(&chart, &[listed]).matched, Match::Likely);
}

#[test]
fn a_chart_of_another_home_and_other_versions_is_unknown() {
    let other = without_home(candidate("up", &["9.0.0"]));
    assert_eq!(judge_simply(&installed("1.2.3"), &[other]), Judgement::unknown());
    let mut of_other_name = candidate("up", &["1.2.3"]);
    of_other_name.chart = "website".to_owned();
    assert_eq!(
        judge_simply(&installed("1.2.3"), &[of_other_name]),
        Judgement::unknown()
    );
    assert_eq!(judge_simply(&installed("1.2.3"), &[]), Judgement::unknown());
}

#[test]
fn empty_links_are_not_equal() {
    let mut chart = installed("1.2.3");
    chart.home = Some(" ".to_owned());
    let mut listed = candidate("up", &["9.0.0"]);
    listed.home = Some(String::new());
    assert_eq!(judge_simply(&chart, &[listed]).matched, Match::Unknown);
}

/// As in FairwindsOps/nova#270: a mirror stopped at an old version, and was taken for the newest one.
#[test]
fn a_mirror_that_has_stopped_makes_the_match_ambiguous() {
    let stopped = candidate("mirror", &["6.11.3", "6.11.2"]);
    let upstream = candidate("bitnami", &["6.28.4", "6.11.3", "6.11.2"]);
    let judgement = judge_simply(&installed("6.11.3"), &[stopped, upstream.clone()]);
    assert_eq!((judgement.matched, &judgement.verdict), (Match::Ambiguous, &None));
    assert_eq!(names(&judgement), ["team/bitnami", "team/mirror"]);
    let judgement = judge_simply(&installed("6.11.3"), &[upstream]);
    assert_eq!(judgement.verdict.unwrap().newest_minor.as_deref(), Some("6.28.4"));
}

/// As in FairwindsOps/nova#345: a chart of another repository, older than the installed one, was reported as the newest.
#[test]
fn a_namesake_with_older_versions_is_never_the_answer() {
    let mut chart = installed("3.0.3");
    chart.home = Some("https://github.com/kubernetes-sigs/aws-efs-csi-driver".to_owned());
    let namesake = without_home(candidate("community", &["0.1.0"]));
    assert_eq!(
        judge_simply(&chart, std::slice::from_ref(&namesake)),
        Judgement::unknown()
    );
    let mut right = candidate("kubernetes-sigs", &["3.0.8", "3.0.3"]);
    right.home.clone_from(&chart.home);
    let judgement = judge_simply(&chart, &[namesake, right]);
    assert_eq!(names(&judgement), ["team/kubernetes-sigs"]);
    assert_eq!(judgement.verdict.unwrap().newest_patch.as_deref(), Some("3.0.8"));
}

/// As in FairwindsOps/nova#353: a fork with the same name and higher versions won by its stars.
#[test]
fn a_fork_with_higher_versions_needs_a_preference() {
    let mut chart = installed("0.7.6");
    let mut fork = candidate("kafbat", &["1.4.9", "0.7.6"]);
    fork.home = Some("https://github.com/kafbat/kafka-ui".to_owned());
    let original = candidate("provectus", &["0.7.6", "0.7.5"]);
    let judgement = judge_simply(&chart, &[fork.clone(), original.clone()]);
    assert_eq!(
        (judgement.matched, names(&judgement)),
        (Match::Likely, vec!["team/provectus".to_owned()])
    );
    assert_eq!(judgement.verdict.unwrap().status, Status::Current);

    chart.home = None;
    let candidates = [fork, original];
    assert_eq!(judge_simply(&chart, &candidates).matched, Match::Ambiguous);
    let options = JudgeOptions {
        prefer: vec!["other/kafbat".parse().unwrap(), "team/provectus".parse().unwrap()],
        devel: false,
    };
    let judgement = judge(&chart, &candidates, &options);
    assert_eq!(
        (judgement.matched, judgement.verdict.unwrap().status),
        (Match::Possible, Status::Current)
    );
}

/// As in skyhook-io/radar#630: the first repository with a chart of that name was taken.
#[rstest]
fn the_order_of_candidates_and_names_of_repositories_decide_nothing(
    #[values("stable", "bitnami", "official")] popular: &str,
) {
    let chart = InstalledChart {
        home: None,
        ..installed("1.0.0")
    };
    let mut candidates = [
        candidate(popular, &["1.0.0", "1.0.1"]),
        candidate("zzz", &["1.0.0", "2.0.0"]),
    ];
    let first = judge_simply(&chart, &candidates);
    candidates.reverse();
    assert_eq!(judge_simply(&chart, &candidates), first);
    assert_eq!((first.matched, first.verdict), (Match::Ambiguous, None));
}

#[test]
fn copies_with_the_same_digest_and_newest_version_count_as_one() {
    let copy = |repository: &str, digest: &str, versions: &[&str]| {
        with_digest(candidate(repository, versions), "1.0.0", digest)
    };
    let versions = ["1.0.0", "1.1.0"];
    let chart = installed("1.0.0");
    let judgement = judge_simply(&chart, &[copy("b", "sha256:AB", &versions), copy("a", "ab", &versions)]);
    assert_eq!(
        (judgement.matched, names(&judgement)),
        (Match::Likely, vec!["team/a".into(), "team/b".into()])
    );
    assert_eq!(judgement.verdict.unwrap().newest_minor.as_deref(), Some("1.1.0"));
    for other in [
        copy("b", "cd", &versions),
        copy("b", "", &versions),
        copy("b", "ab", &["1.0.0", "1.1.0", "1.2.0"]),
    ] {
        let judgement = judge_simply(&chart, &[copy("a", "ab", &versions), other]);
        assert_eq!((judgement.matched, judgement.verdict), (Match::Ambiguous, None));
    }
}

#[test]
fn two_objects_of_the_declared_repository_count_as_one_unless_they_differ() {
    let mut chart = installed("1.0.0");
    chart.url = Some("https://up.example".to_owned());
    let same = |repository: &str, versions: &[&str]| Candidate {
        url: "https://up.example".to_owned(),
        ..candidate(repository, versions)
    };
    let judgement = judge_simply(&chart, &[same("a", &["1.0.0"]), same("b", &["1.0.0"])]);
    assert_eq!((judgement.matched, judgement.repositories.len()), (Match::Exact, 2));
    let judgement = judge_simply(&chart, &[same("a", &["1.0.0"]), same("b", &["1.0.0", "2.0.0"])]);
    assert_eq!(judgement.matched, Match::Ambiguous);
}

#[test]
fn more_versions_than_are_compared_are_ambiguous() {
    let versions: Vec<String> = (0..MAX_VERSIONS).map(|number| format!("1.{number}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let large = candidate("a", &versions);
    assert_eq!(
        judge_simply(&installed("1.0.0"), std::slice::from_ref(&large)).matched,
        Match::Likely
    );
    let judgement = judge_simply(&installed("1.0.0"), &[large, candidate("b", &["1.0.0"])]);
    assert_eq!((judgement.matched, judgement.verdict), (Match::Ambiguous, None));
}

#[test]
fn a_judgement_names_a_limited_number_of_repositories() {
    let candidates: Vec<_> = (0..100)
        .map(|number| candidate(&format!("r{number:03}"), &["1.0.0"]))
        .collect();
    let judgement = judge_simply(&installed("1.0.0"), &candidates);
    assert_eq!(
        (judgement.matched, judgement.repositories.len()),
        (Match::Ambiguous, MAX_REPOSITORIES)
    );
}

#[test]
fn a_judgement_is_written_in_camel_case() {
    let judgement = judge_simply(&installed("1.0.0"), &[candidate("up", &["1.0.0-rc.1", "0.9.0"])]);
    let json = serde_json::to_value(&judgement).unwrap();
    let verdict = serde_json::json!({
        "status": "notListed", "newestPatch": null, "newestMinor": null, "newestMajor": null, "deprecated": false,
    });
    let repositories = serde_json::json!([{ "namespace": "team", "name": "up" }]);
    let expected = serde_json::json!({ "matched": "possible", "repositories": repositories, "verdict": verdict });
    assert_eq!(json, expected);
}

proptest! {
    #[test]
    fn the_order_of_versions_is_irrelevant(
        numbers in prop::collection::vec((0_u8..3, 0_u8..3, 0_u8..3), 1..20),
        seed in any::<prop::sample::Index>(),
    ) {
        let versions: Vec<String> = numbers.iter().map(|(a, b, c)| format!("{a}.{b}.{c}")).collect();
        let mut versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        let chart = installed("1.1.1");
        let first = judge_simply(&chart, &[candidate("up", &versions)]);
        let middle = seed.index(versions.len());
        versions.rotate_left(middle);
        prop_assert_eq!(judge_simply(&chart, &[candidate("up", &versions)]), first);
    }

    #[test]
    fn no_text_fails(name in ".*", version in ".*", url in ".*", home in ".*") {
        let chart = InstalledChart { name: name.clone(), version, url: Some(url.clone()), home: Some(home), ..InstalledChart::default() };
        let listed = Candidate { chart: name, url, ..candidate("up", &["1.0.0"]) };
        let _ = judge_simply(&chart, &[listed]);
    }
}
