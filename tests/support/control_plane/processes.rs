//! The processes of a control plane.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::tool;
use crate::support::ports::free_port;
use crate::support::process::{Process, ScratchDir};
use crate::support::target_dir;

fn start(number: usize, directory: &ScratchDir, name: &str, arguments: &[String]) -> Process {
    let log = target_dir("logs").join(format!("{name}-{number}.log"));
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(log)
        .expect("a log can be written");
    let errors = log.try_clone().expect("a file can be shared");
    let mut command = Command::new(tool(name));
    command
        .args(arguments)
        .current_dir(directory.path())
        .env("GOGC", "400") // a quarter of the API server's time is garbage collection otherwise
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    Process::spawn(&mut command, "KILL")
}

pub(super) fn start_etcd(number: usize, directory: &ScratchDir) -> (String, Process) {
    let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let arguments = [
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(), // nothing here outlives the tests
    ];
    let process = start(number, directory, "etcd", &arguments);
    (client, process)
}

pub(super) fn start_api_server(
    number: usize,
    directory: &ScratchDir,
    (port, flags): (u16, &[&str]),
    etcd_url: &str,
) -> Process {
    let mut arguments = vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--tls-cert-file=tls.crt".to_owned(),
        "--tls-private-key-file=tls.key".to_owned(),
        "--cert-dir=certs".to_owned(),
        "--client-ca-file=ca.crt".to_owned(),
        "--token-auth-file=tokens.csv".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-account-key-file=service-accounts.pub".to_owned(),
        "--service-account-signing-key-file=service-accounts.key".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    start(number, directory, "kube-apiserver", &arguments)
}

pub(super) fn start_controller_manager(
    number: usize,
    directory: &ScratchDir,
    kubeconfig: PathBuf,
    controllers: &str,
) -> Process {
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        "--service-account-private-key-file=service-accounts.key".to_owned(),
        "--root-ca-file=ca.crt".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--controllers={controllers}"),
        "--secure-port=0".to_owned(), // serves nothing
        "--bind-address=127.0.0.1".to_owned(),
    ];
    start(number, directory, "kube-controller-manager", &arguments)
}
