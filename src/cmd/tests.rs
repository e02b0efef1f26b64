//! Tests of the flags of all commands, and of the arguments of Kubeapps' programs.

use super::*;

fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    super::parse(arguments.iter().map(OsString::from))
}

fn run(arguments: &[&str]) -> run::Run {
    match parse(arguments).unwrap_or_else(|error| panic!("{error}")).command {
        Command::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

fn sync(arguments: &[&str]) -> sync::Sync {
    match parse(arguments).unwrap_or_else(|error| panic!("{error}")).command {
        Command::Sync(sync) => *sync,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_of_the_command_line_is_valid() {
    command().debug_assert();
}

#[test]
fn each_flag_has_help_and_an_environment_variable_of_its_name() {
    let root = command();
    for command in std::iter::once(&root).chain(root.get_subcommands()) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let name = format!("{} {}", command.get_name(), argument.get_id());
            assert!(
                argument.get_help().is_some_and(|help| help.to_string().len() > 10),
                "{name} has no help"
            );
            if let Some(long) = argument.get_long().filter(|long| !long.starts_with("help")) {
                let expected = format!("PORTOLAN_{}", long.replace('-', "_").to_uppercase());
                assert_eq!(
                    argument.get_env().and_then(|env| env.to_str()),
                    Some(expected.as_str()),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn hidden_flags_have_no_environment_variable() {
    let all = command();
    // `gc` reads the variables of `run`, also of flags that change nothing there.
    for command in all.get_subcommands().filter(|command| command.get_name() != "gc") {
        for argument in command.get_arguments().filter(|argument| argument.is_hide_set()) {
            assert!(
                argument.get_env().is_none(),
                "{} is hidden, but can be set from the environment",
                argument.get_id()
            );
        }
    }
}

#[test]
fn run_has_the_documented_defaults() {
    let run = run(&["portolan", "run"]);
    assert_eq!(run.syncing.crontab, "*/10 * * * *");
    assert_eq!(run.syncing.min_interval.as_secs(), 60);
    assert_eq!(run.syncing.sync_workers.get(), 256);
    assert_eq!(run.fetch.index_max_bytes, 100 << 20);
    assert_eq!(
        (
            run.fetch.connect_timeout.as_secs(),
            run.fetch.stall_timeout.as_secs(),
            run.fetch.fetch_timeout.as_secs()
        ),
        (10, 30, 180)
    );
    assert_eq!(
        (
            run.fetch.host_requests_per_second.get(),
            run.fetch.host_burst.get(),
            run.fetch.host_requests_at_once.get()
        ),
        (50, 100, 8)
    );
    assert_eq!((run.syncing.queue_rate.get(), run.syncing.queue_burst.get()), (10, 100));
    assert_eq!(run.service.drain_timeout.as_secs(), 30);
    assert_eq!(run.service.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(run.service.http_connections, 256);
    assert_eq!((run.api.kube_api_inflight.get(), run.api.kube_api_qps), (64, 0));
    assert!(!run.fetch.addresses.allow_loopback && !run.allow_tenant_proxies && !run.service.metrics_auth);
    assert_eq!(run.database.database_url.reveal(), "sqlite://portolan.db");
    assert!(run.repos_per_namespace && !run.syncing.once && !run.syncing.confirm_removals);
}

/// The arguments in Kubeapps' Helm chart, with literal quotes.
#[test]
fn the_arguments_of_kubeapps_controller_are_accepted() {
    let run = run(&[
        "/apprepository-controller",
        "--user-agent-comment=kubeapps/2.12.1",
        "--repo-sync-image=docker.io/bitnami/kubeapps-asset-syncer:2.12.1",
        "--repo-sync-image-pullsecrets=secret-1",
        "--repo-sync-image-pullsecrets=secret-2",
        "--repo-sync-cmd=/asset-syncer",
        "--namespace=kubeapps",
        "--global-repos-namespace=kubeapps-repos-global",
        "--database-secret-name=kubeapps-postgresql",
        "--database-secret-key=postgres-password",
        "--database-url=kubeapps-postgresql:5432",
        "--database-user=postgres",
        "--database-name=assets",
        "--crontab=*/5 * * * *",
        "--repos-per-namespace=false",
        "--custom-annotations=\"foo13=bar13\",\"foo13x=bar13x\"",
        "--custom-labels=\"foo14=bar14,foo14x=bar14x\"",
        "--ttl-lifetime-afterfinished-job=1200",
        "--active-deadline-seconds=600",
        "--successful-jobs-history-limit=2",
        "--failed-jobs-history-limit=1",
        "--concurrency-policy=Replace",
        "--v1-beta1-cron-jobs=true",
        "--oci-catalog-url=kubeapps-internal-kubeappsapis:50061",
        "--logtostderr=true",
        "-v=3",
    ]);
    assert_eq!(run.namespace.as_deref(), Some("kubeapps"));
    assert!(!run.repos_per_namespace);
    assert_eq!(run.syncing.crontab, "*/5 * * * *");
    assert_eq!(run.database.database_url.reveal(), "kubeapps-postgresql:5432");
    assert_eq!(
        (run.database.database_user.as_str(), run.database.database_name.as_str()),
        ("postgres", "assets")
    );
    assert_eq!(run.database_secret_name.as_deref(), Some("kubeapps-postgresql"));
    assert!(
        run.deprecated
            .warning()
            .is_some_and(|warning| warning.contains("--repo-sync-image,") && warning.contains("--custom-labels"))
    );
    assert!(run.fetch.user_agent().ends_with("(kubeapps/2.12.1)"));
}

#[test]
fn the_arguments_of_kubeapps_sync_jobs_are_accepted() {
    let sync = sync(&[
        "/asset-syncer",
        "sync",
        "--database-url=postgresql:5432",
        "--database-user=admin",
        "--database-name=assets",
        "--user-agent-comment=kubeapps/2.12.1",
        "--global-repos-namespace=kubeapps-repos-global",
        "--namespace=kubeapps",
        "my-charts",
        "https://charts.example/my-charts",
        "oci",
        "--oci-repositories",
        "apache,jenkins",
        "--tls-insecure-skip-verify",
        "--pass-credentials",
        "--filter-rules",
        r#"{"jq":".name == $var1","variables":{"$var1":"wordpress"}}"#,
    ]);
    assert_eq!(
        (sync.name.as_str(), sync.url.as_str(), sync.kind.as_str()),
        ("my-charts", "https://charts.example/my-charts", "oci")
    );
    assert_eq!(sync.oci_repositories[0].0, ["apache", "jenkins"]);
    assert_eq!(sync.namespace, "kubeapps");
    assert!(sync.tls_insecure_skip_verify && sync.pass_credentials);
    assert!(sync.filter_rules.starts_with('{'));
}

#[test]
fn the_arguments_of_kubeapps_cleanup_jobs_are_accepted() {
    let cli = parse(&[
        "/asset-syncer",
        "delete",
        "my-charts",
        "--namespace=kubeapps",
        "--database-url=postgresql:5432",
        "--database-user=admin",
        "--database-name=assets",
    ]);
    assert!(
        matches!(cli.unwrap().command, Command::Delete(delete) if delete.name == "my-charts" && delete.namespace == "kubeapps")
    );
    assert!(matches!(
        parse(&[
            "asset-syncer",
            "--debug",
            "invalidate-cache",
            "--namespace=kubeapps",
            "--pass-credentials"
        ])
        .unwrap()
        .command,
        Command::InvalidateCache(_)
    ));
}

#[test]
fn both_controllers_run_by_default() {
    let enabled = |flags: &[&str]| {
        let cluster = ["portolan", "run", "--kubeconfig=config"];
        let options = run(&[&cluster, flags].concat()).options()?;
        Ok::<_, Error>((options.apprepository.is_some(), options.application.is_some()))
    };
    assert_eq!(enabled(&[]), Ok((true, true)));
    assert_eq!(enabled(&["--controllers=apprepository,application"]), Ok((true, true)));
    assert_eq!(enabled(&["--controllers=apprepository"]), Ok((true, false)));
    assert_eq!(enabled(&["--controllers=application"]), Ok((false, true)));
    assert_eq!(enabled(&["--applications=false"]), Ok((true, false)));
    assert_eq!(enabled(&["--applications"]), Ok((true, true)));
    assert_eq!(enabled(&["--once"]), Ok((true, false)));
    assert_eq!(enabled(&["--manifests=."]), Ok((true, false)));
    for flags in [
        ["--controllers=application", "--once"],
        ["--controllers=application", "--manifests=."],
        ["--controllers=application", "--applications=false"],
        ["--enable-leader-election", "--manifests=."],
    ] {
        assert_eq!(enabled(&flags).unwrap_err().exit_code(), 2, "{flags:?}");
    }
}

#[test]
fn an_unknown_controller_is_an_error_that_lists_the_valid_ones() {
    let error = parse(&["portolan", "run", "--controllers=apprepository,sail"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(
        text.contains("sail") && text.contains("[possible values: apprepository, application, oam]"),
        "{text}"
    );
}

#[test]
fn the_last_value_of_a_repeated_flag_wins() {
    assert_eq!(
        run(&["portolan", "run", "--crontab=@daily", "--crontab=@hourly"])
            .syncing
            .crontab,
        "@hourly"
    );
}

#[test]
fn a_boolean_flag_takes_an_optional_value_after_an_equals_sign() {
    assert!(run(&["portolan", "run", "--once"]).syncing.once);
    assert!(run(&["portolan", "run", "--once=true"]).syncing.once);
    assert!(!run(&["portolan", "run", "--once=0"]).syncing.once);
    assert!(parse(&["portolan", "run", "--once=maybe"]).is_err());
}

#[test]
fn invalid_usage_exits_with_2() {
    for arguments in [
        &["portolan"][..],
        &["portolan", "sail"],
        &["portolan", "run", "--no-such-flag"],
        &["portolan", "run", "--drain-timeout=soon"],
        &["portolan", "run", "--listen=nowhere"],
        &["portolan", "run", "--metrics-bind-address=nowhere"],
        &["portolan", "run", "--http-connections=8"],
        &["portolan", "run", "--kube-api-inflight=0"],
        &["portolan", "sync", "name"],
        &["portolan", "status", "-o", "xml"],
    ] {
        assert_eq!(parse(arguments).unwrap_err().exit_code(), 2, "{arguments:?}");
    }
    assert_eq!(parse(&["portolan", "--help"]).unwrap_err().exit_code(), 0);
    assert_eq!(parse(&["portolan", "--version"]).unwrap_err().exit_code(), 0);
}

#[test]
fn a_password_in_the_url_is_not_printed() {
    let cli = parse(&["portolan", "run", "--database-url=postgres://u:hunter2@h/d"]).unwrap();
    assert!(!format!("{cli:?}").contains("hunter2"));
}

/// Returns the addresses with what they serve.
fn listeners(arguments: &[&str]) -> Vec<String> {
    let arguments = [&["portolan", "run", "--controllers=oam"], arguments].concat();
    let options = run(&arguments).options().unwrap();
    let listeners = options.listeners.iter().map(|listener| {
        let probes = if listener.has_probes { " health" } else { "" };
        let metrics = if listener.has_metrics { " metrics" } else { "" };
        format!("{}{probes}{metrics}", listener.address)
    });
    listeners.collect()
}

#[test]
fn the_controller_oam_listens_at_kubevelas_addresses_unless_ours_is_set() {
    assert_eq!(listeners(&[]), [":9440 health", ":8080 health metrics"]);
    assert_eq!(listeners(&["--health-addr=:8080"]), [":8080 health metrics"]);
    assert_eq!(listeners(&["--metrics-addr=0", "--health-addr=:1"]), [":1 health"]);
    assert_eq!(listeners(&["--metrics-addr", "", "--health-addr="]), [""; 0]);
    assert_eq!(listeners(&["--listen=:1", "--metrics-addr=:2"]), [":1 health metrics"]);
    assert_eq!(
        listeners(&["--metrics-bind-address=:3"]),
        [":9440 health", ":3 metrics"]
    );
}

#[test]
fn the_controller_oam_has_kubevelas_lease_and_rate_limit() {
    use crate::manager::{LeaderElection, SourceOptions};
    let options = |more: &[&str]| {
        let arguments = [
            &[
                "portolan",
                "run",
                "--controllers=oam,application",
                "--apiserver=http://x",
            ],
            more,
        ]
        .concat();
        run(&arguments).options()
    };
    let found = options(&[]).unwrap();
    assert!(found.oam.is_some() && found.application.is_some() && found.apprepository.is_none());
    assert!(matches!(found.leader_election, LeaderElection::RefuseIfHeld(_)));
    // Wherever Portolan runs: vela-core holds its Lease there.
    for (flag, namespace) in [
        ("--namespace=pods", "vela-system"),
        ("--system-definition-namespace=vela", "vela"),
    ] {
        let LeaderElection::RefuseIfHeld(lease) = options(&[flag]).unwrap().leader_election else {
            panic!("a Lease is expected");
        };
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), (namespace, "kubevela"));
    }
    let flags = [
        "--enable-leader-election",
        "--leader-election-namespace=here",
        "--leader-election-retry-period=1s",
        "--kube-api-qps=0.5",
        "--kube-api-burst=7",
    ];
    let found = options(&flags).unwrap();
    let LeaderElection::Enabled(lease) = found.leader_election else {
        panic!("{:?}", found.leader_election);
    };
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("here", "kubevela"));
    assert_eq!(lease.timing.retry_period.as_secs(), 1);
    let SourceOptions::Cluster(cluster) = found.source else {
        panic!("a cluster is expected");
    };
    let limits = cluster.limits.unwrap();
    let numbers = [limits.per_second, limits.burst].map(|number| number.unwrap().get());
    assert_eq!(numbers, [1, 7]);
    let error = options(&["--leader-election-retry-period=20s"]).err();
    assert!(matches!(error, Some(Error::Usage(_))), "{error:?}");
}

#[test]
fn flags_of_kubevela_are_unknown_without_the_controller_oam() {
    assert!(parse(&["portolan", "run", "--use-webhook"]).is_err());
    assert!(parse(&["portolan", "run", "--controllers=application", "--health-addr=:1"]).is_err());
    let run = run(&["portolan", "run"]);
    assert!(run.kubevela.is_none() && run.options().unwrap().oam.is_none());
}

#[test]
fn verbosity_and_log_debug_raise_the_log_level() {
    let debug = |flag| {
        let parsed = parse(&["portolan", "run", "--controllers=oam", flag]);
        parsed.unwrap().logging.debug
    };
    assert!(debug("--log-debug") && debug("-v=2") && !debug("--v=1"));
}

#[test]
fn dev_logs_are_text() {
    let arguments = [
        "portolan",
        "--log-format=json",
        "run",
        "--controllers=oam",
        "--dev-logs",
    ];
    assert_eq!(parse(&arguments).unwrap().logging.log_format, LogFormat::Text);
    assert_eq!(parse(&arguments[..4]).unwrap().logging.log_format, LogFormat::Json);
}
