use clap::Args;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::api::{Application, Guarded};
use crate::cmd::flags::{cluster::ClusterFlags, non_empty};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::application::cached::CachedApplication;
use crate::controllers::application::owners::finalizer::{
    Released, has_finalizer, must_release, release, remove_finalizer,
};
use crate::runtime::kube_client::call;

/// Objects per page of a list.
const PAGE_SIZE: u32 = 100;

/// Remove Portolan's finalizer from Applications, so that they can be deleted without it
///
/// Stop Portolan first. Owner references, statuses and charts stay. Applications that are being deleted release their
/// components before.
#[derive(Args, Debug)]
pub struct Uninstall {
    /// Namespace of the Applications (default: all namespaces)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Uninstall {
    pub(in crate::cmd) async fn execute(self) -> Result<(), Error> {
        let client = self.cluster.client().await?;
        let applications: Api<Guarded<Application>> = match non_empty(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let (mut removed, mut failures) = (0, Vec::new());
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = call(applications.list(&parameters)).await;
            let page = page.map_err(failed_to("list Applications"))?;
            for Guarded(object) in page.items {
                // An object that can't be decoded has never adopted anything.
                let application = object.0.ok().map(CachedApplication::from);
                let has_finalizer = |application: &CachedApplication| has_finalizer(&application.metadata);
                if let Some(application) = application.filter(has_finalizer) {
                    // One that a tenant makes fail must not stop the others.
                    match uninstall(&client, &application).await {
                        Ok(()) => removed += 1,
                        Err(Error::Failed(message)) => failures.push(message),
                        Err(error) => return Err(error),
                    }
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
        output::print(&format!("finalizer removed from {removed} Applications\n"))?;
        if failures.is_empty() {
            return Ok(());
        }
        failures.push(format!(
            "{} Applications keep the finalizer; run the command again",
            failures.len()
        ));
        Err(Error::Failed(failures.join("\n")))
    }
}

async fn uninstall(client: &Client, application: &CachedApplication) -> Result<(), Error> {
    let (meta, name) = (&application.metadata, &application.spec.name);
    if meta.deletion_timestamp.is_some() && must_release(meta, false) {
        let action = format!("release the components of Application {name}");
        while release(client, application).await.map_err(failed_to(&action))? == Released::Incomplete {}
    }
    let action = format!("remove the finalizer of Application {name}");
    remove_finalizer(client, application).await.map_err(failed_to(action))
}
