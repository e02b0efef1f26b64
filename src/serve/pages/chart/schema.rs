use askama::Template;

use super::Shown;
use super::text::cut_lines;
use crate::serve::api::files::{FileName, Opened};
use crate::serve::site::Site;

#[derive(Template)]
#[template(path = "chart/schema.html", config = "src/serve/pages/askama.toml")]
pub(super) struct SchemaTab {
    text: Option<String>,
    is_cut: bool,
    /// The archive was read, and has none.
    is_none: bool,
    /// The path of the whole text.
    file_link: String,
}

impl SchemaTab {
    pub(super) fn new(site: &Site, shown: &Shown, opened: Opened) -> Self {
        let file_link = shown.file_address(site, &FileName::Schema);
        let cut = opened.file.map(|file| cut_lines(&file.text));
        Self {
            is_cut: cut.as_ref().is_some_and(|cut| cut.is_cut),
            text: cut.map(|cut| cut.text),
            is_none: opened.view.is_complete(),
            file_link,
        }
    }
}
