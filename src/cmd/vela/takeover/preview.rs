//! Lists the changes of the first pass after a takeover.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::print_state;
use crate::api::oam::Application;
use crate::cmd::Error;
use crate::cmd::vela::diff::{self, DiffTarget, ObjectComparison};
use crate::cmd::vela::objects;
use crate::cmd::vela::render::definition_set::DefinitionSet;
use crate::cmd::vela::render::references;
use crate::controllers::oam::dispatch::admission::controls_elsewhere;
use crate::controllers::oam::trackers::{Inventory, display_name};

/// Prints a line for the Application, then one for each change. `definitions` come with the namespace of those for all
/// Applications.
pub async fn print(
    comparison: &ObjectComparison,
    live: &Application,
    declared: Application,
    definitions: (&DefinitionSet, &str),
) -> Result<(), Error> {
    let name = objects::identity(live).name;
    let references: Vec<String> = references(live).collect();
    if !references.is_empty() {
        let inventory = objects::inventory(comparison.clusters().own(), live).await?;
        print_state(&name, "would be taken over")?;
        print_elsewhere(live, &inventory)?;
        let mut references = references.iter();
        return references.try_for_each(|reference| diff::print("unknown", &format!("changes: {reference}")));
    }
    let target = DiffTarget::of(comparison.clusters(), declared, Some(live), definitions).await?;
    print_state(&name, "would be taken over")?;
    print_elsewhere(live, &target.inventory)?;
    if target.is_new_revision {
        diff::print("revision", "a new one is created, and the workflow runs")?;
    } else if target.runs {
        diff::print("workflow", "has not finished, and continues")?;
    }
    match comparison.print(&target, false).await? {
        0 => Ok(()),
        unchanged => diff::print("unchanged", &format!("{unchanged} objects")),
    }
}

/// Names recorded objects that give privileges in other namespaces. An Application without identity could not create them.
fn print_elsewhere(live: &Application, inventory: &Inventory) -> Result<(), Error> {
    if objects::names_user(live) {
        return Ok(());
    }
    let namespace = live.namespace().unwrap_or_default();
    let entries = inventory.in_order().flat_map(|tracker| &tracker.entries);
    let elsewhere = entries.filter(|entry| controls_elsewhere(&namespace, &entry.api_version, &entry.namespace));
    let names: BTreeSet<String> = elsewhere.map(display_name).collect();
    let mut names = names.iter();
    names.try_for_each(|name| {
        let text = format!("{name}: in another namespace, where it may get other privileges; it is kept");
        diff::print("elsewhere", &text)
    })
}
