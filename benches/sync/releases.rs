//! Releases of Helm: the decoder, and the list of all releases of a real API server.

use std::io::Write;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use portolan::api::NamespacedName;
use portolan::releases::cluster::{self, Limits, Scope};
use portolan::releases::decode;
use portolan::runtime::kube_client::metrics::RequestMetrics;
use portolan::runtime::kube_client::{ConnectOptions, connect};
use serde_json::json;

use crate::report::{AboveIdle, Cpu, Row, Wall};
use crate::rig::measure::{PEAK, RESIDENT, cpu, memory, reset_peak_memory};
use crate::rig::{ControlPlane, Namespaces, RUNS, Sample, each};

const RELEASES: usize = 2_000;
const DECODES: usize = 100;
/// Bytes before compression to a half, and base64.
const LARGE: usize = 1_500_000;
const USUAL: usize = 30_000;

pub async fn run() -> Vec<Row> {
    vec![decoded(), listed().await]
}

fn decoded() -> Row {
    let value = release("web-0", LARGE);
    let object = NamespacedName::new("team", "sh.helm.release.v1.web-0.v1");
    let decoded = || decode(value.as_bytes(), &object).expect("a release");
    assert_eq!(decoded().chart.name, "web");
    // The code is in memory now, but a new thread has its own memory from the allocator, which keeps it after the first one.
    let memory = peak(|| {
        let first = std::thread::scope(|scope| scope.spawn(decoded).join());
        assert!(first.is_ok(), "the thread ends");
    });
    let own = std::process::id();
    let samples = (0..RUNS).map(|_| {
        let (started, before) = (Instant::now(), cpu(own).expect("this process runs"));
        for _ in 0..DECODES {
            std::hint::black_box(decoded());
        }
        let used = cpu(own).expect("this process runs") - before;
        Sample {
            cpu: used / DECODES as f64,
            ..memory.wall(started.elapsed().as_secs_f64() / DECODES as f64)
        }
    });
    let samples: Vec<Sample> = samples.collect();
    let case = format!("Metadata of a release of {:.1} MB", value.len() as f64 / 1e6);
    Row::new(&case, &samples).limits(&[Cpu(0.002), AboveIdle(0.25)])
}

fn peak(work: impl FnOnce()) -> Sample {
    let own = std::process::id();
    let idle = memory(own, RESIDENT);
    reset_peak_memory(own);
    work();
    Sample {
        idle,
        peak: memory(own, PEAK),
        ..Sample::default()
    }
}

async fn listed() -> Row {
    let control_plane = ControlPlane::start().await;
    let namespaces = Namespaces::new(&control_plane, 20).await;
    each(0..RELEASES, async |number| {
        let name = format!("web-{number}");
        let labels = json!({ "owner": "helm", "status": "deployed", "name": name, "version": "1" });
        let secret = json!({
            "metadata": { "name": format!("sh.helm.release.v1.{name}.v1"), "labels": labels },
            "type": "helm.sh/release.v1",
            "stringData": { "release": release(&name, USUAL) },
        });
        namespaces.create(number, "v1 Secret", secret).await;
    })
    .await;
    let options = ConnectOptions {
        kubeconfig: Some(control_plane.kubeconfig()),
        ..ConnectOptions::default()
    };
    let client = connect(&options, &RequestMetrics::default()).await.expect("a client");
    let own = std::process::id();
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        let idle = memory(own, RESIDENT);
        reset_peak_memory(own);
        let (started, before) = (Instant::now(), cpu(own).expect("this process runs"));
        let listing = cluster::list(&client, &Scope::default(), Limits::default()).await;
        assert_eq!(listing.expect("a list").releases.len(), RELEASES);
        samples.push(Sample {
            cpu: cpu(own).expect("this process runs") - before,
            peak: memory(own, PEAK),
            idle,
            ..Sample::of_wall(started.elapsed().as_secs_f64())
        });
    }
    Row::new(&format!("{RELEASES} releases, listed"), &samples).limits(&[Wall(3.0), AboveIdle(40.0)])
}

/// Returns a release as Helm stores it, whose templates and manifest are random digits.
fn release(name: &str, bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    });
    let random: String = words.take(bytes / 16).collect();
    let metadata = json!({ "name": "web", "version": "1.2.0", "home": "https://home.example" });
    let json = format!(
        r#"{{"name":"{name}","info":{{"status":"deployed","notes":"none"}},"chart":{{"metadata":{metadata},"templates":["{random}"]}},"version":1}}"#
    );
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(json.as_bytes()).expect("memory can be written");
    BASE64_STANDARD.encode(gzip.finish().expect("memory can be written"))
}
