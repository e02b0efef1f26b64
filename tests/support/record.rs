//! Parts of pages in docs/ that tests write.

use std::sync::Mutex;

use super::project;

/// Replaces what is between two marks of a page.
pub fn record(page: &str, [begin, end]: [&str; 2], text: &str) {
    // Tests that run side by side write to one page.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    let path = project(page);
    let whole = std::fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = whole.split_once(begin).expect("the page has the first mark");
    let (_, after) = rest.split_once(end).expect("the page has the second mark");
    std::fs::write(path, format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
        .expect("the page can be written");
}
