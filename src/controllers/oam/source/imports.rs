//! Imports, which stand at the head of a template, and the functions that the template selects from them.

use std::collections::BTreeSet;

use super::SyntaxError;
use super::tokens::{Token, TokenKind, tokenize};

/// The prefix of KubeVela's packages.
const VELA: &str = "vela/";
/// The prefixes of packages that CUE does not have: of KubeVela, and of the cluster.
const PREFIXES: [&str; 2] = [VELA, "ext/"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CueImport {
    pub name: String,
    pub path: String,
    /// The functions that the template selects, `None` if it doesn't name the package.
    pub functions: Option<BTreeSet<String>>,
}

impl CueImport {
    /// Returns the name of a package `vela/*`.
    #[must_use]
    pub fn vela_package(&self) -> Option<&str> {
        self.path.strip_prefix(VELA)
    }
}

/// Returns the imports of packages of KubeVela and of the cluster, with the functions that the template selects. A template
/// that can't be read has none.
#[must_use]
pub fn function_imports(template: &str) -> Vec<CueImport> {
    // Most templates have none.
    if !PREFIXES.iter().any(|prefix| template.contains(prefix)) {
        return Vec::new();
    }
    let Ok(tokens) = tokenize(template) else {
        return Vec::new();
    };
    let mut imports = imports_of(template, &tokens.tokens);
    imports.retain(|import| PREFIXES.iter().any(|prefix| import.path.starts_with(prefix)));
    for import in &mut imports {
        import.functions = selected(template, &tokens.tokens, &import.name);
    }
    imports
}

/// Reads import declarations.
///
/// # Errors
///
/// Literals and brackets that don't match.
pub fn imports(source: &str) -> Result<Vec<CueImport>, SyntaxError> {
    Ok(imports_of(source, &tokenize(source)?.tokens))
}

fn imports_of(source: &str, tokens: &[Token]) -> Vec<CueImport> {
    let text = |token: &Token| &source[token.start..token.end];
    let word = |index: usize| {
        let token = tokens.get(index).filter(|token| token.kind == TokenKind::Word);
        token.map_or("", text)
    };
    let mut imports = Vec::new();
    let mut at = 0;
    loop {
        let next = tokens.get(at + 1).map(|token| token.kind);
        match (word(at), next) {
            ("package", Some(TokenKind::Word)) => at += 2,
            ("import", Some(TokenKind::Word | TokenKind::Text | TokenKind::Open)) => {
                let end = match tokens.get(at + 1) {
                    Some(token) if token.kind == TokenKind::Open => token.partner + 1,
                    Some(token) if token.kind == TokenKind::Word => at + 3,
                    _ => at + 2,
                };
                add_imports(source, tokens.get(at + 1..end).unwrap_or_default(), &mut imports);
                at = end;
            }
            _ if tokens.get(at).is_some_and(|token| token.kind == TokenKind::Comma) => at += 1,
            _ => return imports,
        }
    }
}

fn add_imports(source: &str, tokens: &[Token], imports: &mut Vec<CueImport>) {
    let mut alias = None;
    for token in tokens {
        let text = &source[token.start..token.end];
        match token.kind {
            TokenKind::Word => alias = Some(text),
            TokenKind::Text => {
                let path = text.trim_matches('"');
                let (path, name) = path.split_once(':').unwrap_or((path, path));
                let last = name.rsplit('/').next().unwrap_or_default();
                imports.push(CueImport {
                    name: alias.take().unwrap_or(last).to_owned(),
                    path: path.to_owned(),
                    functions: None,
                });
            }
            _ => {}
        }
    }
}

/// Returns the functions that a text selects from a package, `None` if it doesn't name it.
#[must_use]
pub fn selected(text: &str, tokens: &[Token], package: &str) -> Option<BTreeSet<String>> {
    let word = |index: usize| tokens.get(index).map_or("", |token| &text[token.start..token.end]);
    let mut selected = None;
    for index in 0..tokens.len() {
        let is_selected = index.checked_sub(1).is_some_and(|before| word(before) == ".");
        if word(index) == package && word(index + 1) == "." && !is_selected {
            selected
                .get_or_insert_with(BTreeSet::new)
                .insert(word(index + 2).to_owned());
        }
    }
    if let Some(names) = &mut selected {
        names.retain(|name| name.starts_with('#') && name.len() > 1);
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(template: &str) -> Vec<String> {
        let imports = function_imports(template).into_iter();
        imports.map(|import| import.path).collect()
    }

    #[test]
    fn packages_with_functions_are_found_at_the_head_only() {
        let template = "// text\npackage x\n\nimport \"strings\"\nimport k \"vela/kube:kube\"\nimport (\n\t// \"vela/no\"\n\t\
                        \"list\"\n\t\"ext/bank\"\n)\nimport (\"vela/http\", \"vela/cue\")\n\noutput: {a: \"vela/x\"}\n\
                        import \"vela/late\"\n";
        assert_eq!(packages(template), ["vela/kube", "ext/bank", "vela/http", "vela/cue"]);
        for none in [
            "",
            "important: \"vela/x\"",
            "import: \"vela/x\"",
            "\"vela/y\": 1",
            "import (\"list\"\n\t\"strings\")\nimage: \"ext/app\"\n",
            "import (\n\t\"list\" // \"vela/kube\"\n)\n",
            "import \"vela/kube",
        ] {
            assert_eq!(packages(none), [] as [&str; 0], "{none}");
        }
    }

    #[test]
    fn functions_are_those_that_the_template_selects() {
        let imports =
            function_imports("import k \"vela/kube\"\nimport \"vela/http\"\na: k.#Get\nb: {c: k.#Patch & {}}\n");
        let functions = BTreeSet::from(["#Get".to_owned(), "#Patch".to_owned()]);
        assert_eq!(imports[0].functions, Some(functions));
        assert_eq!(imports[1].functions, None);
    }

    #[test]
    fn selected_functions_are_those_of_the_package_and_no_others() {
        let text = "a: kube.#Read & {b: x.kube.#No, c: \"\\(kube.#In)\"}\n// kube.#Comment";
        let tokens = tokenize(text).unwrap().tokens;
        let selected_of = |package| selected(text, &tokens, package);
        let functions = BTreeSet::from(["#In".to_owned(), "#Read".to_owned()]);
        assert_eq!(selected_of("kube"), Some(functions));
        assert_eq!(selected_of("strings"), None);
    }
}
