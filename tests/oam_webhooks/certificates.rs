//! Certificates from files, and of Portolan's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::site::{Reviewed, SERVICE, application};
use crate::oam_apps::apps::{config, spec};
use crate::support::eventually::{SOON, eventually};
use crate::support::process::ScratchDir;
use crate::support::tls::Authority;

fn base64(text: &str) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap();
    value.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_replaced_while_requests_run() {
    let reviewed = Reviewed::new("Fail").await;
    let name = format!("{SERVICE}.{}.svc", reviewed.site.namespace);
    let [first, second] = [(); 2].map(|()| Authority::for_names(&[&name]));
    let both = base64(&format!("{}{}", first.ca_pem, second.ca_pem));
    reviewed.configure("Fail", Some(&both)).await;
    let directory = ScratchDir::new("webhooks");
    let write = |authority: &Authority| {
        directory.write("tls.crt", &authority.certificate_pem);
        directory.write("tls.key", &authority.key_pem);
    };
    write(&first);
    let directory_flag = format!("--webhook-cert-dir={}", directory.path().display());
    let port = format!("--webhook-port={}", reviewed.port);
    let namespace = format!("--namespace={}", reviewed.site.namespace);
    let portolan = reviewed
        .site
        .portolan(&["--use-webhook", &port, &directory_flag, &namespace])
        .await;
    reviewed.until_called().await;

    let reviewed = Arc::new(reviewed);
    let (is_done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let requests = tokio::spawn({
        let (reviewed, is_done, count) = (Arc::clone(&reviewed), Arc::clone(&is_done), Arc::clone(&count));
        let app = application("app", spec(&[config("a", "one")]));
        async move {
            while !is_done.load(Ordering::Relaxed) {
                let written = reviewed.create_dry("applications", &app).await;
                assert_eq!(written.code, 201, "{written:?}");
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    write(&second);
    eventually(SOON, "the second certificate", async || {
        let lines = portolan.lines();
        let served = lines
            .iter()
            .filter(|line| line.contains("serving a certificate for webhooks"));
        (served.count() == 2).then_some(())
    })
    .await;
    let before = count.load(Ordering::Relaxed);
    eventually(SOON, "requests after the change", async || {
        (count.load(Ordering::Relaxed) > before + 5).then_some(())
    })
    .await;
    is_done.store(true, Ordering::Relaxed);
    requests.await.unwrap();
    // The API server trusts the new authority alone now.
    reviewed.configure("Fail", Some(&base64(&second.ca_pem))).await;
    reviewed.until_called().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_certificate_ends_the_start_with_what_to_do() {
    let reviewed = Reviewed::new("Ignore").await;
    let directory = ScratchDir::new("webhooks");
    let directory_flag = format!("--webhook-cert-dir={}", directory.path().display());
    let port = format!("--webhook-port={}", reviewed.port);
    let kubeconfig = reviewed.site.control_plane.kubeconfig();
    let mut portolan = reviewed
        .site
        .start(&kubeconfig, &["--use-webhook", &port, &directory_flag]);
    let exit = portolan.exit(SOON * 2).await;
    assert_eq!(exit.code(), Some(1));
    let lines = portolan.lines();
    let error = lines.iter().find(|line| line.starts_with("error: ")).unwrap();
    assert!(
        error.contains("tls.crt") && error.contains("--webhook-cert-dir"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_with_another_certificate_is_replaced_and_the_authority_is_written_again() {
    let reviewed = Reviewed::new("Fail").await;
    let foreign = Authority::new();
    let secret = json!({
        "metadata": { "labels": { "app.kubernetes.io/managed-by": "portolan" } },
        "type": "kubernetes.io/tls",
        "data": { "tls.crt": base64(&foreign.certificate_pem), "tls.key": base64(&foreign.key_pem) },
    });
    reviewed.site.apply("v1 Secret", SERVICE, secret).await;
    let portolan = reviewed.portolan(&[]).await;
    let secret = reviewed.site.get("v1 Secret", SERVICE).await.unwrap();
    assert_ne!(secret["data"]["tls.crt"], base64(&foreign.certificate_pem));
    let key = secret["data"]["tls.key"].as_str().unwrap().to_owned();
    let is_secret = |line: &String| line.contains(&key) || line.contains("PRIVATE KEY");
    assert!(!portolan.lines().iter().any(is_secret));

    // Someone removes the authority from a configuration.
    let kind = "MutatingWebhookConfiguration";
    let patch = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]).to_string();
    let control_plane = reviewed.site.control_plane;
    control_plane
        .kubectl(&["patch", kind, &reviewed.configuration(), "--type=json", "-p", &patch])
        .await;
    eventually(SOON * 2, "the authority to be written again", async || {
        let text = control_plane
            .kubectl(&["get", kind, &reviewed.configuration(), "-o", "json"])
            .await;
        let configuration: Value = serde_json::from_str(&text).unwrap();
        configuration["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .map(|_| ())
    })
    .await;
    reviewed.until_called().await;
    // The Service has no endpoints before the process is ready.
    let unserved = format!("no endpoints for service {}/{SERVICE}", reviewed.site.namespace);
    assert!(!portolan.lines().iter().any(|line| line.contains(&unserved)));
}
