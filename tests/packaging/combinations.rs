//! Values that would render, and then break: each is refused with a sentence, or renders what works.

use portolan::runtime::cron::Intervals;
use rstest::rstest;
use serde_json::Value;

use super::values::{pod, rendered};
use super::{KUBE_VERSION, chart, documents, helm, helm_output};

/// Returns the error of a rendering, or nothing if it succeeds.
pub async fn refusal(settings: &[&str]) -> Option<String> {
    let arguments = ["template", "try", &chart(), KUBE_VERSION];
    let output = helm(&[&arguments, settings].concat()).await;
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

const JOBS: &str = "--set=executor.mode=job,database.url=postgres://db/charts,database.passwordSecret.name=postgres,initialRepos[0].name=a";
const WEBHOOKS: &str = "--set=oam.enabled=true,oam.webhooks.enabled=true";
const REPOSITORY: &str = "--set=initialRepos[0].name=a,initialRepos[0].url=https://charts.example.com";

#[rstest]
#[case::ports(&["--set=service.port=9090,metrics.port=9090"], "service.port and metrics.port are both 9090")]
#[case::spool(&["--set=spool.limit=3Gi"], "spool.limit=3Gi is larger than its volume, spool.sizeLimit=2Gi")]
#[case::spool_in_bytes(&["--set-string=spool.limit=2147483649"], "is larger than its volume")]
#[case::spool_of_other_units(&["--set=spool.limit=1025Mi,spool.sizeLimit=1Gi"], "is larger than its volume")]
#[case::lease(&["--set=leaderElection.leaseDuration=9s"], "leaderElection.leaseDuration (15s if empty) must be longer")]
#[case::lease_equal(&["--set=leaderElection.renewDeadline=15000ms"], "leaderElection.leaseDuration (15s if empty) must be longer")]
#[case::lease_period(&["--set=leaderElection.retryPeriod=10s"], "leaderElection.renewDeadline (10s if empty) must be longer")]
#[case::drain(&["--set=drainTimeout=4m"], "uninstallHook.timeoutSeconds=240 is too short with drainTimeout=4m: set at least 335")]
#[case::selector(&[r"--set=podLabels.app\.kubernetes\.io/name=mine"], "podLabels: the chart sets app.kubernetes.io/name")]
#[case::instance(&[r"--set=podLabels.app\.kubernetes\.io/instance=mine"], "podLabels: the chart sets app.kubernetes.io/instance")]
#[case::pod_monitor(&["--set=networkPolicy.enabled=true,metrics.podMonitor.enabled=true"], "metrics.podMonitor promises; name Prometheus in networkPolicy.metricsFrom")]
#[case::service_monitor(&["--set=networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true"], "name Prometheus in networkPolicy.metricsFrom")]
#[case::tolerations(&[JOBS, REPOSITORY, "--set=initialRepos[0].tolerations[0].operator=Exists"], "a has tolerations, which Jobs refuse with executor.podTemplate=limited")]
#[case::ignored_selector(&[JOBS, REPOSITORY, "--set=initialRepos[0].nodeSelector.disk=ssd,executor.podTemplate=none"], "which Jobs ignore with executor.podTemplate=none")]
#[case::root(&[JOBS, REPOSITORY, "--set=initialRepos[0].securityContext.runAsUser=0"], "a has root's ID in securityContext.runAsUser")]
#[case::group_of_root(&[JOBS, REPOSITORY, "--set=initialRepos[0].securityContext.supplementalGroups={5,0}"], "a has root's ID in securityContext.supplementalGroups")]
#[case::sysctls(&[JOBS, REPOSITORY, "--set=initialRepos[0].securityContext.sysctls[0].name=kernel.x"], "a has securityContext.sysctls, which Jobs refuse")]
#[case::ca_without_certificate(&[WEBHOOKS, "--set=oam.webhooks.caBundle=Cg=="], "belong to a certificate of your own; set certificateSecret")]
#[case::certificate_without_ca(&[WEBHOOKS, "--set=oam.webhooks.certificateSecret=a"], "set caBundle or injectCaFrom")]
#[case::kubernetes_without_a_review_of_the_own_user(&[WEBHOOKS, "--kube-version=1.27.9"], "oam.webhooks needs Kubernetes 1.28 or newer")]
#[case::webhooks_of_another_shard(&[WEBHOOKS, "--set=oam.args={--enable-sharding,--shard-id=red}"], "the release with --shard-id=red serves none")]
#[case::webhook_port(&[WEBHOOKS, "--set=oam.webhooks.port=8080"], "oam.webhooks.port=8080 is the port of health or metrics")]
#[case::releases_without_a_catalog(&["--set=releases.enabled=true,oam.enabled=true,oam.args={--controllers=oam}"], "which --controllers=oam has not; set releases.enabled=false")]
#[case::threshold(&["--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.thresholds.PortolanBored=1"], "no alert PortolanBored with a threshold")]
#[case::no_threshold(&["--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.thresholds.PortolanDown=1"], "no alert PortolanDown with a threshold")]
#[tokio::test]
async fn values_that_contradict_each_other_are_refused_with_a_sentence(
    #[case] settings: &[&str],
    #[case] sentence: &str,
) {
    let error = refusal(settings).await.expect("a refusal");
    assert!(error.contains(sentence), "{error}");
}

#[tokio::test]
async fn values_at_the_edge_of_a_refusal_are_accepted() {
    for settings in [
        &["--set=spool.limit=2Gi"][..],
        &[
            "--set-string=spool.limit=2147483648",
            "--set=spool.sizeLimit=2147483648",
        ],
        &["--set=spool.limit=1Gi,spool.sizeLimit=1500M"],
        &["--set=leaderElection.leaseDuration=10001ms"],
        &["--set=drainTimeout=145s"],
        &["--set=podLabels.team=a"],
        &[
            WEBHOOKS,
            "--set=oam.webhooks.certificateSecret=a,oam.webhooks.injectCaFrom=certs/a",
        ],
        &[WEBHOOKS, "--set=oam.args={--enable-sharding,--shard-id=master}"],
        &["--set=oam.enabled=true,oam.webhooks.port=8080"],
        &[REPOSITORY, "--set=initialRepos[0].tolerations[0].operator=Exists"],
        &[
            JOBS,
            REPOSITORY,
            "--set=initialRepos[0].tolerations[0].operator=Exists,executor.podTemplate=full",
        ],
        &[
            JOBS,
            REPOSITORY,
            "--set=initialRepos[0].securityContext.runAsUser=1000,initialRepos[0].securityContext.runAsNonRoot=true",
        ],
        &["--set=initialRepos[0].name=a,initialRepos[0].url=oci://registry.example.com:5000/charts@stable"],
    ] {
        assert_eq!(refusal(settings).await, None, "{settings:?}");
    }
}

#[tokio::test]
async fn a_password_in_the_url_of_a_repository_is_refused_and_not_repeated() {
    for url in [
        "https://me:hunter2@charts.example.com",
        "oci://hunter2@registry.example.com/charts",
    ] {
        let settings = format!("--set=initialRepos[0].name=a,initialRepos[0].url={url}");
        let error = refusal(&[&settings]).await.expect("a refusal");
        assert!(error.contains("the URL of a contains a user or password"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// The schedules that the chart and the controller must agree on.
const CRONTABS: [&str; 31] = [
    "*/10 * * * *",
    "0 3 * * 1-5",
    "0 0 29 2 *",
    "0 0 31 1,2 *",
    "0 0 31 2 1",
    "5,35 0-6 ? * *",
    "0 0 L * *",
    "0 0 * * MON#2",
    "@hourly",
    "@5minutes",
    "@Daily",
    "10m",
    "1h30m",
    "8928h",
    "30 0 3 * * *",
    "0 3 * * * 2030",
    "60 * * * *",
    "* 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 1 13 *",
    "0 0 * * 8",
    "0 0 31 2 *",
    "0 0 30,31 02 *",
    "0 0 31 4,6,9,11 ?",
    "*/0 * * * *",
    "* * * *",
    "@reboot",
    "@every 5m",
    "0s",
    "8929h",
];

#[tokio::test]
async fn an_impossible_crontab_is_refused_as_by_the_controller() {
    let intervals = Intervals::default();
    for crontab in CRONTABS {
        let setting = format!("crontab={}", crontab.replace(',', "\\,"));
        let refused = refusal(&["--set-string", &setting]).await;
        assert_eq!(
            refused.is_some(),
            intervals.parse(crontab).is_err(),
            "{crontab}: {refused:?}"
        );
        if let Some(error) = refused {
            assert!(
                error.contains("crontab: ") && error.contains("set a cron expression"),
                "{error}"
            );
        }
    }
}

/// Replaces a text in all strings of a document.
fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        Value::Object(fields) => {
            let replaced = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                replace(&mut value, from, to);
                (key.replace(from, to), value)
            });
            *fields = replaced.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn names_that_look_like_numbers_stay_texts() {
    // A text that no name of the chart contains.
    const NAME: &str = "q42q";
    let render = async |name: &str| {
        // Without the types that `--set` guesses.
        let texts = format!(
            "nameOverride={name},fullnameOverride={name},kubeappsNamespace={name},serviceAccount.name={name},\
             priorityClassName={name},database.passwordSecret.name={name},database.passwordSecret.key={name},\
             imagePullSecrets[0].name={name},podLabels.a={name},executor.mode=job,database.url=postgres://db/charts,\
             initialRepos[0].name={name},initialRepos[0].url=https://charts.example.com,initialRepos[0].caCert=-----BEGIN c,\
             serve.database.existingSecret={name},serve.database.existingSecretKey={name},serve.ingress.className={name},\
             serve.ingress.tlsSecret={name},serve.podLabels.a={name},serve.externalUrl=https://charts.example.com/{name}"
        );
        let others = "--set=rbac.secrets=false,networkPolicy.enabled=true,metrics.prometheusRule.enabled=true,\
                      metrics.dashboard.enabled=true,leaderElection.enabled=true,replicas=2,serve.enabled=true,\
                      serve.archives=proxy,serve.ingress.enabled=true,serve.networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8";
        let arguments = [
            "template",
            name,
            &chart(),
            KUBE_VERSION,
            "--namespace",
            name,
            others,
            "--set-string",
            &texts,
        ];
        documents(&helm_output(&arguments).await)
    };
    let mut expected = render(NAME).await;
    assert!(expected.len() > 20, "{}", expected.len());
    for document in &mut expected {
        replace(document, NAME, "42");
    }
    assert_eq!(render("42").await, expected);
}

#[tokio::test]
async fn the_pod_has_the_time_that_the_drain_takes() {
    let with = async |settings: &str| pod(settings).await;
    let usual = with("").await;
    assert_eq!(usual["terminationGracePeriodSeconds"], 45);
    assert!(!usual["containers"][0]["args"].to_string().contains("drain-timeout"));
    let long = with("drainTimeout=1m30s,uninstallHook.timeoutSeconds=300").await;
    assert_eq!(long["terminationGracePeriodSeconds"], 105);
    assert!(
        long["containers"][0]["args"]
            .to_string()
            .contains("\"--drain-timeout=1m30s\"")
    );
    let arguments = [
        "template",
        "try",
        &chart(),
        KUBE_VERSION,
        "--show-only=templates/uninstall.yaml",
    ];
    let hook = helm_output(
        &[
            &arguments[..],
            &["--set=drainTimeout=1m30s,uninstallHook.timeoutSeconds=300"],
        ]
        .concat(),
    )
    .await;
    let hook = documents(&hook).pop().unwrap()["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(
        hook.contains("--scale-down-timeout=120s") && hook.contains("--timeout=17s"),
        "{hook}"
    );
}

#[tokio::test]
async fn the_liveness_probe_waits_for_a_slow_start() {
    let container = pod("").await["containers"][0].take();
    let startup = &container["startupProbe"];
    assert_eq!(startup["httpGet"], container["livenessProbe"]["httpGet"]);
    let seconds = startup["periodSeconds"].as_u64().unwrap() * startup["failureThreshold"].as_u64().unwrap();
    assert!(seconds >= 300, "{seconds}");
}

#[tokio::test]
async fn a_network_policy_closes_the_pod_of_the_uninstall_hook() {
    let settings = ["--set=networkPolicy.enabled=true"];
    let policies = rendered("NetworkPolicy", &settings).await;
    let policy = policies
        .iter()
        .find(|policy| policy["metadata"]["name"] == "try-portolan-uninstall")
        .expect("a policy");
    assert_eq!(policy["spec"]["ingress"], Value::Null);
    let arguments = [
        "template",
        "try",
        &chart(),
        KUBE_VERSION,
        "--show-only=templates/uninstall.yaml",
    ];
    let job = documents(&helm_output(&arguments).await).pop().unwrap();
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], *labels);
    assert_ne!(
        rendered("Deployment", &settings).await[0]["spec"]["selector"]["matchLabels"],
        *labels,
        "the policy is not that of the controller"
    );
    let without = ["--set=networkPolicy.enabled=true,uninstallHook.enabled=false"];
    assert_eq!(rendered("NetworkPolicy", &without).await.len(), 1);
}

#[tokio::test]
async fn the_notes_name_private_networks_and_the_namespace_of_jobs() {
    let notes = async |settings: &str| {
        let arguments = [
            "install",
            "try",
            &chart(),
            "--dry-run=client",
            "--no-hooks",
            "--namespace=sea",
            "--set",
            settings,
        ];
        helm_output(&arguments).await
    };
    let usual = notes("crontab=@hourly").await;
    assert!(usual.contains("set allowPrivateNetworks=false"), "{usual}");
    assert!(!usual.contains("namespace of their own"), "{usual}");
    let jobs = JOBS.split(",initialRepos").next().unwrap().trim_start_matches("--set=");
    let closed = notes(&format!("allowPrivateNetworks=false,{jobs}")).await;
    assert!(!closed.contains("allowPrivateNetworks"), "{closed}");
    assert!(closed.contains("give them a\nnamespace of their own"), "{closed}");
}
