use askama::Template;

use super::Shown;
use super::markup::{self, Markup};
use crate::serve::api::files::{FileName, FileText, Opened};
use crate::serve::problem::Problem;
use crate::serve::site::Site;

#[derive(Template)]
#[template(path = "chart/readme.html", config = "src/serve/pages/askama.toml")]
pub(super) struct ReadmeTab {
    content: Content,
    /// The path of the whole text.
    file_link: String,
}

enum Content {
    Rendered(Markup),
    /// The archive has none.
    Absent,
    /// The header says why.
    NotImported,
}

impl ReadmeTab {
    pub(super) async fn load(site: &Site, shown: &Shown, opened: Opened) -> Result<Self, Problem> {
        let Opened { file, view } = opened;
        let content = match file {
            Some(file) => {
                let work = move || {
                    let FileText { text, memory } = file;
                    let rendered = markup::render(&text);
                    drop(memory);
                    rendered
                };
                Content::Rendered(site.rows().compute(&shown.namespace, work).await?)
            }
            None if view.is_complete() => Content::Absent,
            None => Content::NotImported,
        };
        Ok(Self {
            content,
            file_link: shown.file_address(site, &FileName::Readme),
        })
    }
}
