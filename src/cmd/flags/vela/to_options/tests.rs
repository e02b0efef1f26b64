use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::api::oam::compression::Format;
use crate::cmd::flags::vela::tests::flags;
use crate::controllers::oam::dispatch::admission::ResourceTypes;
use crate::controllers::oam::dispatch::decide::UpdateMethod;
use crate::controllers::oam::references::ReferenceScope;
use crate::controllers::oam::rights::IdentityOptions;
use crate::controllers::oam::{ApplyOnceMode, shard_label, workflow};
use crate::http::{self, FetchLimits, Fetcher};

fn fetcher() -> Fetcher {
    Fetcher::new(http::Settings::default()).unwrap()
}

#[test]
fn options_have_the_defaults_of_kubevela() {
    let options = flags(&[]).to_options(None, "portolan", fetcher()).unwrap();
    assert_eq!((options.workers, options.max_concurrent_writes), (4, 10));
    assert_eq!((options.revision_limit, options.definition_revision_limit), (10, 20));
    assert_eq!(
        (options.resync_period, options.pass_timeout),
        (Duration::from_mins(5), Duration::from_mins(3))
    );
    assert_eq!(options.shard, None);
    assert_eq!(options.workflow, workflow::WorkflowSettings::default());
    assert_eq!((options.tracker_format, options.revision_format), (None, None));
    assert!(options.has_stages && options.has_dry_run && options.respects_autoscalers);
    assert_eq!(options.apply_once, ApplyOnceMode::Off);
    assert_eq!(options.identity, IdentityOptions::default());
    assert_eq!(options.reference_scope, ReferenceScope::Global);
    assert!(!options.is_strict);
    assert_eq!(options.evaluator.program, None);
}

#[tokio::test]
async fn steps_reach_private_networks_only_with_their_flag() {
    let url = "http://127.0.0.1:1/".parse().unwrap();
    let error = async |arguments: &[&str]| {
        let options = flags(arguments).to_options(None, "portolan", fetcher()).unwrap();
        let fetched = options.fetcher.get(&url, None, &FetchLimits::default()).await;
        fetched.unwrap_err().to_string()
    };
    let refused = error(&[]).await;
    assert!(refused.contains("--allow-private-http"), "{refused}");
    let sent = error(&["--allow-private-http"]).await;
    assert!(sent.starts_with("failed to connect"), "{sent}");
}

#[tokio::test]
async fn joined_clusters_may_have_private_addresses_and_need_a_flag_to_be_insecure() {
    let url = "http://127.0.0.1:1/".parse().unwrap();
    let options = flags(&[]).to_options(None, "portolan", fetcher()).unwrap();
    let fetched = options.joined.fetcher.get(&url, None, &FetchLimits::default()).await;
    let sent = fetched.unwrap_err().to_string();
    assert!(sent.starts_with("failed to connect"), "{sent}");
    assert!(options.joined.is_enabled && !options.joined.allow_insecure);
    let options = flags(&["--allow-insecure-clusters", "--joined-clusters=false"]);
    let options = options.to_options(None, "portolan", fetcher()).unwrap();
    assert!(options.joined.allow_insecure && !options.joined.is_enabled);
}

#[test]
fn flags_and_gates_become_options() {
    let options = flags(&[
        "--feature-gates=ZstdResourceTracker=true,GzipResourceTracker=true,GzipApplicationRevision=true",
        "--feature-gates=ApplyResourceByReplace=true,PreDispatchDryRun=false,ApplyOnce=true",
        "--concurrent-reconciles=0",
        "--application-re-sync-period=1s",
        "--enable-sharding",
        "--shard-id=a",
        "--cue-workers=0",
        "--cue-evaluator=/bin/cue",
        "--allow-resource-types=blacklist:Secret.v1",
        "--feature-gates=AuthenticateApplication=true",
        "--authentication-default-user=guest",
        "--ref-objects-available-scope=namespace",
        "--compat-metrics",
    ]);
    let options = options
        .to_options(Some("here".to_owned()), "portolan", fetcher())
        .unwrap();
    assert_eq!(
        (options.tracker_format, options.revision_format),
        (Some(Format::Zstd), Some(Format::Gzip))
    );
    assert_eq!(options.dispatch.update, UpdateMethod::Replace);
    assert!(!options.has_dry_run && options.has_compat_metrics && !options.has_application_metrics);
    assert_eq!(options.apply_once, ApplyOnceMode::Force);
    assert_eq!((options.workers, options.resync_period), (1, Duration::from_secs(10)));
    assert_eq!(options.shard, Some(shard_label("a")));
    assert_eq!(options.evaluator.workers.get(), 1);
    assert_eq!(options.evaluator.program.as_deref(), Some(Path::new("/bin/cue")));
    assert_eq!(options.namespace.as_deref(), Some("here"));
    assert_ne!(options.admission.resource_types, ResourceTypes::All);
    let identity = IdentityOptions {
        is_authenticated: true,
        default_user: "guest".to_owned(),
        ..IdentityOptions::default()
    };
    assert_eq!(
        (options.identity, options.reference_scope),
        (identity, ReferenceScope::Namespace)
    );
}

#[test]
fn times_limits_and_checks_become_options() {
    let flags = flags(&[
        "--informer-sync-period=1h",
        "--reconcile-timeout=1m",
        "--reconcile-termination-graceful-period=2s",
        "--max-dispatch-concurrent=3",
        "--application-revision-limit=6",
        "--definition-revision-limit=7",
        "--log-file-max-size=8",
        "--max-workflow-wait-backoff-time=9",
        "--max-workflow-failed-backoff-time=10",
        "--allow-cross-namespace-resource=false",
        "--system-definition-namespace=vela",
        "--controller-client-request-timeout=4s",
        "--controller-client-long-running-request-timeout=0s",
        "--controller-client-mutating-request-timeout=5s",
        "--feature-gates=LegacyResourceOwnerValidation=true,ValidateUndeclaredParameters=true",
        "--feature-gates=EnableSuspendOnFailure=true,MultiStageComponentApply=false,ZstdApplicationRevision=true",
    ]);
    let options = flags.to_options(None, "portolan", fetcher()).unwrap();
    assert_eq!(options.relist_period, Some(Duration::from_hours(1)));
    assert_eq!(
        (options.pass_timeout, options.grace_period),
        (Duration::from_mins(1), Duration::from_secs(2))
    );
    assert_eq!(options.max_concurrent_writes, 3);
    assert_eq!((options.revision_limit, options.definition_revision_limit), (6, 7));
    assert_eq!(flags.log_file_max_size, 8);
    assert_eq!(
        (options.workflow.max_wait_backoff, options.workflow.max_failed_backoff),
        (Duration::from_secs(9), Duration::from_secs(10))
    );
    assert!(!options.admission.allow_cross_namespace);
    assert_eq!(options.definition_namespace, "vela");
    let timeouts = flags.request_timeouts();
    assert_eq!(
        (timeouts.get, timeouts.list, timeouts.write),
        (Duration::from_secs(4), Duration::MAX, Duration::from_secs(5))
    );
    assert!(options.dispatch.can_take_over && options.is_strict && options.workflow.suspend_on_failure);
    assert!(!options.has_stages);
    assert_eq!(options.revision_format, Some(Format::Zstd));
}

#[test]
fn flags_and_gates_of_webhooks_become_options() {
    let flags = flags(&[
        "--use-webhook",
        "--schedulable-shards=a,b",
        "--autogen-workload-definition=false",
        "--authentication-with-user",
        "--authentication-group-pattern=team:*",
        "--feature-gates=DisableWebhookAutoSchedule=true,ValidateComponentWhenSharding=true",
        "--feature-gates=ValidateDefinitionPermissions=true,ValidateResourcesExist=true",
    ]);
    let options = flags.to_options(None, "portolan", fetcher()).unwrap();
    let reviews = options.webhooks.unwrap().reviews;
    assert_eq!(reviews.schedulable_shards, ["a", "b"]);
    assert_eq!((reviews.records_user, reviews.group_pattern.as_str()), (true, "team:*"));
    assert!(!reviews.schedules_shards && !reviews.creates_workload_definitions);
    assert!(reviews.checks_components_of_shards && reviews.checks_definition_rights && reviews.checks_kinds);
}

#[rstest]
#[case(&["--reconcile-timeout=0s"][..], "--reconcile-timeout")]
#[case(&["--cue-timeout=0s"], "--cue-timeout")]
#[case(&["--allow-resource-types=none"], "--allow-resource-types")]
#[case(&["--ref-objects-available-scope=none"], "--ref-objects-available-scope")]
#[case(&["--default-service-account=a:b"], "--default-service-account")]
fn options_that_make_no_sense_are_errors(#[case] arguments: &[&str], #[case] flag: &str) {
    let error = flags(arguments).to_options(None, "portolan", fetcher()).unwrap_err();
    assert!(error.starts_with(&format!("invalid value for {flag}: ")), "{error}");
}

#[rstest]
#[case(&[][..], "kubevela")]
#[case(&["--enable-sharding"], "kubevela")]
#[case(&["--enable-sharding", "--shard-id=s1"], "kubevela-s1")]
#[case(&["--shard-id=s1"], "kubevela")]
#[case(&["--ignore-app-without-controller-version"], "kubevela-v1-11-0-alpha-4")]
#[case(&["--ignore-app-without-controller-version", "--compat-version=v1.9.0"], "kubevela-v1-9-0")]
fn the_lease_has_kubevelas_name(#[case] arguments: &[&str], #[case] name: &str) {
    assert_eq!(flags(arguments).lease_name(), name);
}

#[test]
fn flags_of_identities_become_options() {
    let options = flags(&[
        "--default-service-account=tenant",
        "--require-identity",
        "--trust-identity-annotations",
        "--privileged-namespaces=vela-system,platform",
        "--redact-secrets-in-revisions",
        "--feature-gates=DisableReferObjectsFromURL=true",
    ]);
    let options = options.to_options(None, "portolan", fetcher()).unwrap();
    assert_eq!(
        options.identity,
        IdentityOptions {
            trusts_annotations: true,
            default_service_account: Some("tenant".to_owned()),
            is_required: true,
            privileged_namespaces: ["vela-system", "platform"].map(str::to_owned).into(),
            ..IdentityOptions::default()
        }
    );
    assert!(options.redacts_secrets && !options.allows_urls);
}
