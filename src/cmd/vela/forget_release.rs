use clap::Args;

use super::ApplicationFlags;
use super::records::{drop_records, publish};
use crate::cmd::{Error, output};
use crate::controllers::oam::parse::release_of;

/// Drop the records of a Helm release that KubeVela's component helmchart has installed
///
/// An Application with such records is not supported. The release stays installed, and is no longer a part of the
/// Application: `helm uninstall` removes it.
#[derive(Args, Debug)]
pub struct ForgetRelease {
    /// Name of the Application
    name: String,
    /// Name of the release
    release: String,
    /// Drop the records; without it they are only shown
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl ForgetRelease {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let release = self.release.as_str();
        let forgotten = drop_records(&client, &name, self.yes, |entry| {
            release_of(&entry.api_version, &entry.kind, &entry.name) == Some(release)
        })
        .await?;
        let count = forgotten.len();
        if count == 0 {
            return output::print(&format!("{name} has no records of Helm release {release}\n"));
        }
        if !self.yes {
            return output::print(&format!(
                "{count} records would be dropped, and the release stays installed; add --yes to drop them\n"
            ));
        }
        let note = format!("records of Helm release {release} dropped");
        publish(&client, &name, ("ReleaseForgotten", "ForgetRelease"), &note, &forgotten).await?;
        output::print(&format!("{count} records dropped\n"))
    }
}
