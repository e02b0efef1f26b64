//! Pushes charts without helm: faster, and including charts that helm rejects.

use futures::{StreamExt, stream};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde_json::{Value, json};

use super::Registry;
use crate::support::archives::{Archive, sha256};

/// The media type of an image's or a chart's manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const IMAGE_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Maximum number of concurrent requests when many tags are pushed.
const AT_ONCE: usize = 16;

/// A pushed manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `sha256:…` of its bytes.
    pub digest: String,
    pub bytes: Vec<u8>,
}

impl Registry {
    /// Pushes a chart under a tag. helm uses the chart's version with `_` for `+`.
    pub async fn push_chart(&self, repository: &str, tag: &str, archive: &Archive) -> Manifest {
        let config = serde_json::to_vec(&archive.metadata).expect("JSON is written");
        let config = self.push_blob(repository, CHART_CONFIG, &config).await;
        let layer = self.push_blob(repository, CHART_LAYER, &archive.bytes).await;
        self.push_manifest(repository, tag, &manifest(config, &[layer])).await
    }

    /// Pushes many charts of one repository, each under its version.
    pub async fn push_charts(&self, repository: &str, archives: impl IntoIterator<Item = Archive>) {
        stream::iter(archives)
            .for_each_concurrent(AT_ONCE, async |archive| {
                let tag = archive.version().replace('+', "_");
                self.push_chart(repository, &tag, &archive).await;
            })
            .await;
    }

    /// Pushes an image, which is not a chart.
    pub async fn push_image(&self, repository: &str, tag: &str) -> Manifest {
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}});
        let config = self
            .push_blob(repository, IMAGE_CONFIG, config.to_string().as_bytes())
            .await;
        let layer = self.push_blob(repository, IMAGE_LAYER, b"the files of an image").await;
        self.push_manifest(repository, tag, &manifest(config, &[layer])).await
    }

    /// Pushes an index of two manifests, like images for several platforms.
    pub async fn push_image_index(&self, repository: &str, tag: &str) -> Manifest {
        let image = self.push_image(repository, &format!("{tag}-amd64")).await;
        let entry = json!({"mediaType": MANIFEST, "digest": image.digest, "size": image.bytes.len(),
            "platform": {"architecture": "amd64", "os": "linux"}});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
        self.push_manifest(repository, tag, &index).await
    }

    /// Pushes a signature of a manifest under the tag that cosign uses; returns the tag.
    pub async fn push_signature(&self, repository: &str, of: &Manifest) -> String {
        let tag = format!("{}.sig", of.digest.replace(':', "-"));
        let config = self.push_blob(repository, IMAGE_CONFIG, b"{}").await;
        let layer_type = "application/vnd.dev.cosign.simplesigning.v1+json";
        let layer = self.push_blob(repository, layer_type, of.digest.as_bytes()).await;
        self.push_manifest(repository, &tag, &manifest(config, &[layer])).await;
        tag
    }

    /// Pushes a list of charts like VMware's registries: `path` joined with `charts-index`, tag `latest`.
    pub async fn push_charts_index(&self, path: &str, names: &[&str]) -> Manifest {
        let repository = format!("{path}/charts-index");
        let entries: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"name": name, "versions": []})))
            .collect();
        let layer = json!({"entries": entries}).to_string();
        let config_type = "application/vnd.vmware.charts.index.config.v1+json";
        let config = self.push_blob(&repository, config_type, b"{}").await;
        let layer_type = "application/vnd.vmware.charts.index.layer.v1+json";
        let layer = self.push_blob(&repository, layer_type, layer.as_bytes()).await;
        self.push_manifest(&repository, "latest", &manifest(config, &[layer]))
            .await
    }

    /// Pushes a blob and returns its descriptor (OCI distribution specification: POST then PUT).
    pub async fn push_blob(&self, repository: &str, media_type: &str, bytes: &[u8]) -> Value {
        let digest = format!("sha256:{}", sha256(bytes));
        let path = format!("/v2/{repository}/blobs/uploads/");
        let begun = self
            .send(self.request(Method::POST, repository, &self.url(&path)), 202)
            .await;
        let location = begun.headers()[header::LOCATION].to_str().expect("a location is text");
        let mut location = begun.url().join(location).expect("a location is a URL");
        location.query_pairs_mut().append_pair("digest", &digest);
        let put = self
            .request(Method::PUT, repository, location.as_str())
            .header(header::CONTENT_TYPE, "application/octet-stream");
        self.send(put.body(bytes.to_vec()), 201).await;
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// Pushes a manifest with the media type in its content. An existing tag is moved.
    pub async fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Manifest {
        let bytes = manifest.to_string().into_bytes();
        let media_type = manifest["mediaType"].as_str().expect("a manifest has a media type");
        let put = self
            .request(Method::PUT, repository, &self.manifest_url(repository, tag))
            .header(header::CONTENT_TYPE, media_type);
        self.send(put.body(bytes.clone()), 201).await;
        let digest = format!("sha256:{}", sha256(&bytes));
        Manifest { digest, bytes }
    }

    /// Deletes a tag but not its manifest.
    pub async fn delete_tag(&self, repository: &str, tag: &str) {
        let url = self.manifest_url(repository, tag);
        self.send(self.request(Method::DELETE, repository, &url), 202).await;
    }

    fn manifest_url(&self, repository: &str, reference: &str) -> String {
        self.url(&format!("/v2/{repository}/manifests/{reference}"))
    }

    fn request(&self, method: Method, repository: &str, url: &str) -> RequestBuilder {
        let request = self.client.request(method, url);
        match self.authorization(repository) {
            None => request,
            Some(value) => request.header(header::AUTHORIZATION, value),
        }
    }

    async fn send(&self, request: RequestBuilder, expected: u16) -> Response {
        let response = request.send().await.expect("the registry responds");
        let status = response.status();
        if status == StatusCode::from_u16(expected).expect("a status") {
            return response;
        }
        let url = response.url().clone();
        panic!("{url}: {status} {}", response.text().await.unwrap_or_default());
    }
}

fn manifest(config: Value, layers: &[Value]) -> Value {
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
}
