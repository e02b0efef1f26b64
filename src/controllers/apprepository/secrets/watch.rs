use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;

use crate::api::NamespacedName;
use crate::runtime::watch::{Scope, watch_names};

/// Watches the scope and Kubeapps' namespace, which has its copies. Never ends.
pub async fn watch(
    client: Client,
    scope: Scope,
    kubeapps_namespace: String,
    on_change: impl Fn(NamespacedName) + Clone + Send + Sync + 'static,
) {
    let mut scopes = BTreeSet::from([scope]);
    if !scopes.contains(&Scope::All) {
        scopes.insert(Scope::Namespace(kubeapps_namespace));
    }
    let scopes = scopes.into_iter();
    let watches = scopes.map(|scope| watch_names::<Secret>(client.clone(), scope, on_change.clone()));
    join_all(watches).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_metadata_is_requested() {
        let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let accept = request.headers().get(http::header::ACCEPT).cloned();
            sender.send((request.uri().to_string(), accept)).unwrap();
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let list = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;
                let body = kube::client::Body::from(list.as_bytes().to_vec());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        let client = Client::new(service, "default");
        let scope = Scope::Namespace("team-a".to_owned());
        let watches = watch(client, scope, "kubeapps".to_owned(), |name| {
            panic!("unexpected change of {name}")
        });
        let mut watches = std::pin::pin!(watches);
        let mut seen = Vec::new();
        while seen.len() < 4 {
            tokio::select! {
                () = &mut watches => unreachable!(),
                request = requests.recv() => seen.push(request.unwrap()),
            }
        }
        for (uri, accept) in &seen {
            let accept = accept.as_ref().unwrap().to_str().unwrap();
            assert!(
                accept.contains("as=PartialObjectMetadata") && !accept.contains(','),
                "{uri}: {accept}"
            );
        }
        for (namespace, what) in ["team-a", "kubeapps"]
            .into_iter()
            .flat_map(|ns| [(ns, "limit="), (ns, "watch=true")])
        {
            let path = format!("/api/v1/namespaces/{namespace}/secrets?");
            assert!(
                seen.iter().any(|(uri, _)| uri.starts_with(&path) && uri.contains(what)),
                "{seen:?}"
            );
        }
    }
}
