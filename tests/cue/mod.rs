//! The evaluator `portolan-cue`, in the pool that runs it.

mod evaluating;
mod fair;
mod hostile;
mod inspecting;
mod processes;
mod schemas;

use std::num::NonZeroUsize;
use std::time::Duration;

use portolan::budget::ResourceMetrics;
use portolan::cue::{Error, Evaluator, EvaluatorOptions};
use serde_json::Value;

use crate::support::cue::executable;
use crate::support::process::ScratchDir;

const MIB: u64 = 1024 * 1024;

fn options() -> EvaluatorOptions {
    EvaluatorOptions {
        program: Some(executable()),
        workers: NonZeroUsize::MIN,
        // Far more than any evaluation takes on a busy machine.
        timeout: Duration::from_secs(120),
        ..EvaluatorOptions::default()
    }
}

/// The executable under a name of its own, by which its processes are found.
struct NamedProgram {
    directory: ScratchDir,
    /// At most 15 bytes, the length of a process name.
    name: &'static str,
}

impl NamedProgram {
    fn new(name: &'static str) -> Self {
        let directory = ScratchDir::new(name);
        std::os::unix::fs::symlink(executable(), directory.join(name)).unwrap();
        Self { directory, name }
    }

    fn options(&self) -> EvaluatorOptions {
        EvaluatorOptions {
            program: Some(self.directory.join(self.name)),
            ..options()
        }
    }

    /// Returns the IDs of the processes that run.
    fn processes(&self) -> Vec<u32> {
        let ids = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(|id: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            name.trim() == self.name
        })
        .collect()
    }
}

fn evaluator(options: EvaluatorOptions) -> Evaluator {
    Evaluator::new(options, ResourceMetrics::unregistered())
}

async fn evaluate(evaluator: &Evaluator, source: &str) -> Result<Value, Error> {
    evaluator.evaluate("default", source.to_owned()).await
}

/// The shape of a web service: defaults, comprehensions, a reference to the context.
const WEB_SERVICE: &str = r#"
import "strings"

_vela: {
    output: {
        apiVersion: "apps/v1"
        kind:       "Deployment"
        metadata: labels: "app.oam.dev/component": context.name
        spec: {
            selector: matchLabels: "app.oam.dev/component": context.name
            template: {
                metadata: labels: {
                    if parameter.labels != _|_ {parameter.labels}
                    "app.oam.dev/component": context.name
                }
                spec: containers: [{
                    name:  context.name
                    image: parameter.image
                    if parameter["env"] != _|_ {env: parameter.env}
                    if parameter["cmd"] != _|_ {command: strings.Split(parameter.cmd, " ")}
                    if parameter.ports != _|_ {
                        ports: [for v in parameter.ports {
                            containerPort: v.port
                            protocol:      v.protocol
                            if v.name != _|_ {name: v.name}
                            if v.name == _|_ {name: "port-" + "\(v.port)"}
                        }]
                    }
                    if parameter["cpu"] != _|_ {resources: {limits: cpu: parameter.cpu, requests: cpu: parameter.cpu}}
                }]
            }
        }
    }
    outputs: {
        if len([for v in parameter.ports if v.expose {v}]) > 0 {
            service: {
                apiVersion: "v1"
                kind:       "Service"
                metadata: name: context.name
                spec: {
                    selector: "app.oam.dev/component": context.name
                    ports: [for v in parameter.ports if v.expose {port: v.port, targetPort: v.port}]
                    type: parameter.exposeType
                }
            }
        }
    }
    #Health: {
        path:                string
        port:                int
        initialDelaySeconds: *0 | int
        periodSeconds:       *10 | int
    }
    parameter: {
        image:      string
        cmd?:       string
        cpu?:       string
        exposeType: *"ClusterIP" | "NodePort" | "LoadBalancer"
        labels?: [string]: string
        ports?: [...{port: int, name?: string, protocol: *"TCP" | "UDP" | "SCTP", expose: *false | bool}]
        env?: [...{name: string, value?: string}]
        livenessProbe?: #Health
    }
    context: _
    parameter: {image: "nginx:1.27", ports: [{port: 80, expose: true}, {port: 9090, name: "metrics"}], env: [{name: "A", value: "b"}], cpu: "100m", labels: {tier: "front"}}
    context: {name: "web", namespace: "default", appName: "shop", appRevision: "shop-v1"}
}
output: _vela.output
if _vela.outputs != _|_ {outputs: _vela.outputs}
"#;
