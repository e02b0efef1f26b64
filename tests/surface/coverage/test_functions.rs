//! The test functions of the project.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::support::{files_below, project};
use crate::surface::tokens::{group, ident, tokens_of};

/// Paths as the test runner prints them, by the name of the function.
#[derive(Default)]
pub struct TestFunctions(BTreeMap<String, BTreeSet<String>>);

impl TestFunctions {
    pub fn of_project() -> Self {
        let mut functions = Self::default();
        for directory in ["src", "tests"] {
            let root = project(directory);
            for file in files_below(&root, "rs") {
                let text = fs::read_to_string(&file).unwrap();
                let tokens: TokenStream = text
                    .parse()
                    .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                functions.read(&module(file.strip_prefix(&root).unwrap()), &tokens_of(&tokens));
            }
        }
        functions
    }

    fn read(&mut self, module: &str, tokens: &[TokenTree]) {
        let mut is_test = false;
        for (at, token) in tokens.iter().enumerate() {
            if let Some(attribute) = group(Some(token), Delimiter::Bracket) {
                is_test |= is_test_attribute(&attribute);
            }
            let name = ident(tokens.get(at + 1));
            match (ident(Some(token)).as_deref(), name) {
                (Some("fn"), Some(name)) => {
                    if is_test {
                        let path = format!("{module}::{name}");
                        self.0.entry(name).or_default().insert(path);
                    }
                    is_test = false;
                }
                (Some("mod"), Some(name)) => {
                    let body = group(tokens.get(at + 2), Delimiter::Brace).unwrap_or_default();
                    self.read(&format!("{module}::{name}"), &body);
                }
                _ => {}
            }
        }
    }

    /// Returns the paths of functions that are named by themselves, or with the end of their module if others have the
    /// name too.
    pub fn paths(&self, names: &str) -> Vec<String> {
        names.split_whitespace().map(|name| self.path(name)).collect()
    }

    fn path(&self, name: &str) -> String {
        let function = name.rsplit("::").next().unwrap_or(name);
        let paths = self.0.get(function).into_iter().flatten();
        let end = format!("::{name}");
        let found: Vec<&String> = paths.filter(|path| path.ends_with(&end)).collect();
        match found[..] {
            [path] => path.clone(),
            [] => panic!("there is no test {name}"),
            _ => panic!("name the module of the test, {found:?}"),
        }
    }
}

fn module(file: &Path) -> String {
    let file = file.with_extension("");
    let mut segments: Vec<_> = file.iter().map(|segment| segment.to_string_lossy()).collect();
    if segments
        .last()
        .is_some_and(|last| matches!(&**last, "mod" | "lib" | "main"))
    {
        segments.pop();
    }
    segments.join("::")
}

/// Returns true for `#[test]`, `#[rstest]` and `#[tokio::test]`.
fn is_test_attribute(attribute: &[TokenTree]) -> bool {
    let word = |at: usize| ident(attribute.get(at)).unwrap_or_default();
    matches!(word(0).as_str(), "test" | "rstest") || (word(0) == "tokio" && word(3) == "test")
}

#[test]
fn tests_are_found_with_their_module() {
    let source = "
        #[test]
        fn first() {}
        fn helper() {}
        #[cfg(test)]
        mod tests {
            #[rstest]
            #[case(1)]
            #[tokio::test(flavor = \"current_thread\")]
            async fn second(#[case] number: u32) {}
        }
    ";
    let mut functions = TestFunctions::default();
    functions.read("a::b", &tokens_of(&source.parse().unwrap()));
    assert_eq!(
        functions.paths("first tests::second"),
        ["a::b::first", "a::b::tests::second"]
    );
    assert!(!functions.0.contains_key("helper"));
    assert_eq!(module(Path::new("oam/mod.rs")), "oam");
    assert_eq!(module(Path::new("oam/health.rs")), "oam::health");
}
