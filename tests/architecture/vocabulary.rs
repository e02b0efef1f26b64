//! Comments and texts use the terms of Kubernetes, Helm and Rust (CONTRIBUTING.md, "How we write").

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use regex::Regex;

use super::files_in;

/// Doc comments that begin with a subordinate clause.
const HEADLESS: &str = r"^\s*//[/!] (What|Whether|Who|Whose|How|Where|Why|Which|When)\b";
/// Words in comments and string literals that have a standard term or a shorter form.
const BANNED: &str = r#"(?i)(//|").*\b(anew|nobody|somebody|whoever|anybody|in vain|in the place of|by itself|catalogue|neighbou?r'?s?|in step with|of late|for ever|nudge[sd]?|siev(e|ing)|sifted|wholes|(is|are) told|twins?|may not be had|can't be had|is to be)\b"#;
/// Findings that are left, by directory. The numbers only go down.
const ALLOWED: [(&str, usize); 0] = [];
/// Files of one directory.
const MAX_FILES: usize = 16;

#[test]
fn comments_and_texts_use_standard_terms() {
    let rules = [HEADLESS, BANNED].map(|rule| Regex::new(rule).unwrap());
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files_in("src") {
        let path = file.strip_prefix(crate::support::project("src")).unwrap();
        let directory = path.iter().next().unwrap().to_string_lossy().into_owned();
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            if rules.iter().any(|rule| rule.is_match(line)) {
                let finding = format!("{}:{}: {}", path.display(), number + 1, line.trim());
                found.entry(directory.clone()).or_default().push(finding);
            }
        }
    }
    let allowed = BTreeMap::from(ALLOWED);
    let counts: BTreeMap<&str, usize> = found.iter().map(|(name, lines)| (name.as_str(), lines.len())).collect();
    assert_eq!(counts, allowed, "{found:#?}");
}

#[test]
fn a_directory_has_few_files() {
    let mut sizes: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in files_in("src") {
        *sizes.entry(file.parent().unwrap().to_owned()).or_default() += 1;
    }
    sizes.retain(|_, size| *size > MAX_FILES);
    assert!(sizes.is_empty(), "{sizes:#?}");
}
