use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::controllers::oam::ApplyOnceMode;

use super::inert::{FlagEffect, Form, INERT, InertFlags};
use super::{Arity, Bytes, Extracted, Gate, VelaFlags, extract, flag_entries, gate_entries};

/// Some flags of `portolan run`.
fn own(name: &str) -> Option<Arity> {
    match name {
        "controllers" | "metrics-addr" | "kube-api-qps" => Some(Arity::Value),
        "enable-leader-election" => Some(Arity::Boolean),
        _ => None,
    }
}

fn parse(arguments: &[&str]) -> Result<Extracted, String> {
    extract(arguments.iter().map(|argument| (*argument).to_owned()), own)
}

pub(super) fn flags(arguments: &[&str]) -> VelaFlags {
    let extracted = parse(arguments).unwrap();
    assert_eq!(extracted.warnings, [""; 0]);
    extracted.flags
}

#[test]
fn defaults_are_those_of_kubevela() {
    let flags = flags(&[]);
    assert_eq!(flags.metrics_addr, ":8080");
    assert_eq!(flags.application_resync_period, Duration::from_mins(5));
    assert_eq!(flags.informer_sync_period, Duration::from_hours(10));
    assert_eq!(flags.concurrent_reconciles, 4);
    assert_eq!(
        (flags.application_revision_limit, flags.definition_revision_limit),
        (10, 20)
    );
    assert_eq!(flags.definition_namespace, "vela-system");
    assert_eq!(flags.authentication_default_user, "kubevela:vela-core");
    assert_eq!(flags.apply_once, ApplyOnceMode::Off);
    assert!(flags.allow_cross_namespace);
}

/// The arguments that the chart of v1.3 renders.
const CHART_1_3: &str = include_str!("../../../../tests/oam_start/chart-1.3.txt");

/// Those of v1.9, with all optimizations.
const CHART_1_9: &str = include_str!("../../../../tests/oam_start/chart-1.9.txt");

/// Those of the newest chart, with sharding and authentication.
const CHART_NEWEST: &str = include_str!("../../../../tests/oam_start/chart-newest.txt");

/// A flag that all charts set, and that has no effect here.
const GATEWAY: &str = "--enable-cluster-gateway has no effect on this controller";

#[rstest]
#[case(CHART_1_3, &[], &[])]
#[case(CHART_1_9, &[], &[
    "--optimize-cached-gvks has no effect on this controller",
    "--optimize-resource-tracker-list-op has no effect: this controller always works as with the default",
    "--optimize-controller-reconcile-loop-reduction has no effect on this controller",
    "--optimize-disable-component-revision has no effect on this controller",
    "--optimize-disable-workflow-recorder has no effect on this controller",
    "--optimize-enable-in-memory-workflow-context has no effect on this controller",
    "--optimize-disable-resource-apply-double-check has no effect on this controller",
    "--optimize-enable-resource-tracker-delete-only-trigger has no effect: this controller always works as with the default",
])]
#[case(
    CHART_NEWEST,
    &["enable-external-package-for-default-compiler"],
    &[]
)]
fn the_arguments_of_kubevelas_charts_are_accepted(
    #[case] chart: &str,
    #[case] unsupported: &[&str],
    #[case] without_effect: &[&str],
) {
    let arguments: Vec<&str> = chart.lines().collect();
    let extracted = parse(&arguments).unwrap();
    let unsupported = unsupported.iter();
    let unsupported = unsupported.map(|name| format!("--{name} is not supported yet and ignored"));
    let without_effect = without_effect.iter().chain([&GATEWAY]).map(|text| (*text).to_owned());
    let expected: BTreeSet<String> = unsupported.chain(without_effect).collect();
    assert_eq!(extracted.warnings.into_iter().collect::<BTreeSet<_>>(), expected);
    let shared = ["--metrics-addr", "--enable-leader-election", "--kube-api-qps"];
    let shared = arguments
        .iter()
        .filter(|argument| shared.iter().any(|flag| argument.starts_with(flag)));
    assert_eq!(extracted.remaining, shared.copied().collect::<Vec<_>>());
    assert!(extracted.flags.enable_leader_election);
}

#[test]
fn values_of_the_charts_are_set() {
    let chart = |text: &'static str| parse(&text.lines().collect::<Vec<_>>()).unwrap().flags;
    let old = chart(CHART_1_3);
    assert_eq!(old.disabled_capabilities.0, ["rollout"]);
    let new = chart(CHART_NEWEST);
    assert_eq!((new.kube_api_qps, new.kube_api_burst), (400.0, 600));
    let gates = &new.feature_gates;
    assert!(gates.is_enabled(Gate::ZstdResourceTracker) && gates.is_enabled(Gate::AuthenticateApplication));
    assert!(gates.is_enabled(Gate::MultiStageComponentApply) && !gates.is_enabled(Gate::ApplyOnce));
}

#[test]
fn gates_have_defaults_and_the_last_value_counts() {
    let gates = flags(&[]).feature_gates;
    assert!(gates.is_enabled(Gate::MultiStageComponentApply) && !gates.is_enabled(Gate::ZstdResourceTracker));
    let gates = flags(&[
        "--feature-gates=ApplyOnce=true, PreDispatchDryRun = false",
        "--feature-gates",
        "ApplyOnce=false,,",
    ])
    .feature_gates;
    assert!(!gates.is_enabled(Gate::ApplyOnce) && !gates.is_enabled(Gate::PreDispatchDryRun));
}

#[rstest]
#[case("--feature-gates=New=true", "unknown feature gate New ignored")]
#[case(
    "--feature-gates=ApplyOnce",
    "feature gate ApplyOnce ignored: invalid value \"\": expected true or false"
)]
#[case(
    "--feature-gates=ApplyOnce=yes",
    "feature gate ApplyOnce ignored: invalid value \"yes\": expected true or false"
)]
#[case(
    "--feature-gates=EnableGlobalPolicies=true",
    "feature gate EnableGlobalPolicies is not supported yet and ignored"
)]
#[case(
    "--enable-cluster-metrics",
    "--enable-cluster-metrics is not supported yet and ignored"
)]
#[case(
    "--custom-revision-hook-url=http://x",
    "--custom-revision-hook-url is not supported yet and ignored"
)]
#[case(
    "--authentication-with-user",
    "--authentication-with-user has no effect without --use-webhook"
)]
#[case(
    "--feature-gates=ValidateResourcesExist=true",
    "feature gate ValidateResourcesExist has no effect without --use-webhook"
)]
#[case("--brand-new=1", "unknown flag --brand-new ignored")]
#[case("--brand-new", "unknown flag --brand-new ignored")]
fn what_has_no_effect_is_a_warning(#[case] argument: &str, #[case] warning: &str) {
    let extracted = parse(&[argument, "--concurrent-reconciles=7"]).unwrap();
    assert_eq!(extracted.warnings, [warning]);
    assert_eq!(extracted.remaining, [""; 0]);
    assert_eq!(extracted.flags.concurrent_reconciles, 7);
}

#[test]
fn an_unknown_flag_of_two_words_does_not_take_the_next_flag() {
    let extracted = parse(&["--new", "value", "--newer", "--concurrent-reconciles", "7", "--newest"]).unwrap();
    let unknown = ["new", "newer", "newest"].map(|name| format!("unknown flag --{name} ignored"));
    assert_eq!(extracted.warnings, unknown);
    assert_eq!(extracted.flags.concurrent_reconciles, 7);
    assert_eq!(extracted.remaining, [""; 0]);
}

#[test]
fn arguments_of_portolan_remain() {
    let arguments = [
        "--controllers",
        "oam",
        "--cue-workers",
        "1",
        "--kube-api-qps=9",
        "--",
        "--new",
    ];
    let extracted = parse(&arguments).unwrap();
    assert_eq!(
        extracted.remaining,
        ["--controllers", "oam", "--kube-api-qps=9", "--", "--new"]
    );
    assert_eq!(extracted.flags.kube_api_qps, 9.0);
    assert_eq!(extracted.warnings, [""; 0]);
}

#[rstest]
#[case(&["-v=2"][..])]
#[case(&["-v", "2"])]
#[case(&["--v", "2"])]
#[case(&["--v=2", "--logtostderr", "--log_dir=", "--skip-headers=false"])]
fn flags_of_klog_are_accepted(#[case] arguments: &[&str]) {
    assert_eq!(flags(arguments).verbosity, 2);
}

#[test]
fn booleans_take_no_second_word() {
    let flags = flags(&["--dev-logs", "--log-debug=1", "--allow-cross-namespace-resource=F"]);
    assert!(flags.dev_logs && flags.log_debug && !flags.allow_cross_namespace);
}

#[test]
fn older_names_are_accepted() {
    let flags = flags(&["--informer-re-sync-interval=30m", "--pprof-addr=:6060"]);
    assert_eq!(flags.informer_sync_period, Duration::from_mins(30));
    assert_eq!(flags.profiling_addr, ":6060");
}

#[rstest]
#[case("", ApplyOnceMode::Off)]
#[case("false", ApplyOnceMode::Off)]
#[case("off", ApplyOnceMode::Off)]
#[case("true", ApplyOnceMode::On)]
#[case("on", ApplyOnceMode::On)]
#[case("force", ApplyOnceMode::Force)]
fn apply_once_has_three_modes(#[case] word: &str, #[case] mode: ApplyOnceMode) {
    assert_eq!(flags(&[&format!("--apply-once-only={word}")]).apply_once, mode);
}

#[rstest]
#[case("", &[])]
#[case("all", &["rollout", "healthscope", "envbinding"])]
#[case("rollout, envbinding", &["rollout", "envbinding"])]
fn capabilities_are_named(#[case] list: &str, #[case] names: &[&str]) {
    let flags = flags(&[&format!("--disable-caps={list}")]);
    assert_eq!(flags.disabled_capabilities.0, names);
}

#[test]
fn the_evaluator_has_flags_of_its_own() {
    let flags = flags(&["--cue-memory=1GiB", "--cue-timeout=3s", "--cue-workers=1"]);
    assert_eq!(
        (flags.cue_memory, flags.cue_timeout),
        (Bytes(1 << 30), Duration::from_secs(3))
    );
}

#[test]
fn reviews_of_webhooks_take_memory_of_an_evaluator() {
    let memory = |arguments: &[&str]| flags(arguments).evaluators_memory();
    assert_eq!(memory(&["--cue-memory=1GiB", "--cue-workers=2"]), 2 << 30);
    assert_eq!(
        memory(&["--cue-memory=1GiB", "--cue-workers=2", "--use-webhook=true"]),
        3 << 30
    );
}

#[rstest]
#[case(
    "--apply-once-only=maybe",
    "invalid value \"maybe\" for --apply-once-only: expected off, on or force"
)]
#[case(
    "--disable-caps=rollout,x",
    "invalid value \"rollout,x\" for --disable-caps: x in disable caps list is not built-in"
)]
#[case(
    "--oam-spec-ver=v0.2",
    "invalid value \"v0.2\" for --oam-spec-ver: ApplicationConfigurations are not supported; use v0.3 or minimal"
)]
#[case(
    "--oam-spec-ver=v9",
    "invalid value \"v9\" for --oam-spec-ver: expected all, minimal or v0.3"
)]
#[case(
    "--concurrent-reconciles=x",
    "invalid value \"x\" for --concurrent-reconciles: expected a number"
)]
#[case("--kube-api-qps=NaN", "invalid value \"NaN\" for --kube-api-qps: expected a number")]
#[case(
    "--use-webhook=maybe",
    "invalid value \"maybe\" for --use-webhook: expected true or false"
)]
#[case("--webhook-port", "--webhook-port needs a value")]
fn an_invalid_value_of_a_known_flag_is_an_error(#[case] argument: &str, #[case] message: &str) {
    assert_eq!(parse(&[argument]), Err(message.to_owned()));
}

/// Returns a value other than the default.
fn other_value(form: Form, default: Option<&str>) -> &'static str {
    match form {
        Form::Boolean if default == Some("true") => "false",
        Form::Boolean => "true",
        Form::Number => "17",
        Form::Duration => "17m",
        Form::Text => "other",
        Form::SpecVersion => "minimal",
    }
}

#[test]
fn each_flag_without_effect_warns_by_name_once_it_has_another_value_than_the_default() {
    for flag in INERT {
        let value = other_value(flag.form, flag.default);
        let extracted = parse(&[&format!("--{}={value}", flag.name)]).unwrap();
        let warnings = extracted.warnings;
        assert!(
            matches!(warnings.as_slice(), [warning] if warning.starts_with(&format!("--{} ", flag.name))),
            "{}: {warnings:?}",
            flag.name
        );
        if let Some(default) = flag.default {
            let extracted = parse(&[&format!("--{}={default}", flag.name)]).unwrap();
            assert_eq!(extracted.warnings, [""; 0], "{}", flag.name);
        }
    }
}

#[test]
fn each_gate_without_effect_warns_by_name_once_it_has_another_value_than_the_default() {
    for entry in Gate::ALL {
        let (name, default) = (entry.name, entry.default);
        let warnings = |value: bool| {
            let gate = format!("--feature-gates={name}={value}");
            parse(&["--use-webhook", &gate]).unwrap().warnings
        };
        assert_eq!(warnings(default), [""; 0], "{name}");
        match entry.effect {
            FlagEffect::Implemented => assert_eq!(warnings(!default), [""; 0], "{name}"),
            _ => {
                let warnings = warnings(!default);
                let start = format!("feature gate {name} ");
                assert!(
                    warnings.len() == 1 && warnings[0].starts_with(&start),
                    "{name}: {warnings:?}"
                );
            }
        }
    }
}

/// Returns the source of everything that reads flags.
fn readers() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd");
    let files = [
        "flags/vela/to_options.rs",
        "flags/vela/webhooks.rs",
        "run/process.rs",
        "run/options.rs",
        "mod.rs",
    ];
    files
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap())
        .concat()
}

#[test]
fn each_implemented_flag_and_gate_is_read() {
    let readers = readers();
    let command = VelaFlags::command();
    for flag in command.get_arguments().filter(|flag| !InertFlags::contains(flag)) {
        let field = flag.get_id().as_str().replace('-', "_");
        assert!(readers.contains(&format!(".{field}")), "nothing reads the flag {field}");
    }
    for entry in Gate::ALL {
        let is_read = readers.contains(&format!("Gate::{}", entry.name));
        assert_eq!(is_read, entry.effect == FlagEffect::Implemented, "{}", entry.name);
    }
}

#[test]
fn each_flag_and_gate_has_a_name_of_its_own_and_help() {
    let entries = [flag_entries(), gate_entries()].concat();
    assert!(entries.len() > 130, "{}", entries.len());
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), entries.len());
    for entry in &entries {
        assert!(entry.help.len() > 10 && !entry.help.ends_with('.'), "{entry:?}");
    }
}

#[test]
fn the_definition_of_the_flags_is_valid() {
    VelaFlags::command().debug_assert();
}

#[test]
fn an_older_name_of_a_gate_counts() {
    let gates = flags(&["--feature-gates=ApplyResourceByUpdate=true"]).feature_gates;
    assert!(gates.is_enabled(Gate::ApplyResourceByReplace));
}
