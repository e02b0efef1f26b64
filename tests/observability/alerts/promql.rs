//! Finds metrics and labels in expressions of Prometheus. Its grammar is checked only as far as that needs.

/// A selector of series.
#[derive(Debug, PartialEq, Eq)]
pub struct Series {
    pub name: String,
    /// The labels that it matches.
    pub matched: Vec<String>,
}

const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(char),
}

fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            // Texts of matchers and ranges of time hold no names.
            '"' => while rest.next().is_some_and(|c| c != '"') {},
            '[' => while rest.next().is_some_and(|c| c != ']') {},
            c if c.is_alphanumeric() || c == '_' || c == ':' => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '.')) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    tokens
}

fn is_name(word: &str) -> bool {
    !word.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the words until `end`, and the number of tokens with it.
fn words_until(tokens: &[Token], end: char) -> (Vec<String>, usize) {
    let length = tokens
        .iter()
        .position(|token| *token == Token::Sign(end))
        .expect("a closing sign");
    let words = tokens[..length].iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.clone()),
        Token::Sign(_) => None,
    });
    (words.collect(), length + 1)
}

/// Calls `series` for each selector and `groupings` for each list of labels.
fn read(expression: &str, mut series: impl FnMut(Series), mut groupings: impl FnMut(Vec<String>)) {
    let tokens = tokens(expression);
    let mut at = 0;
    while at < tokens.len() {
        let (token, next) = (&tokens[at], tokens.get(at + 1));
        at += 1;
        let Token::Word(word) = token else { continue };
        match next {
            Some(Token::Sign('(')) if GROUPINGS.contains(&word.as_str()) => {
                let (labels, length) = words_until(&tokens[at + 1..], ')');
                groupings(labels);
                at += 1 + length;
            }
            // A function or aggregation; `sum by (…) (…)` has its grouping between.
            Some(Token::Sign('(')) => {}
            Some(Token::Word(next)) if GROUPINGS.contains(&next.as_str()) && is_aggregation(word) => {}
            Some(Token::Sign('{')) => {
                let (matched, length) = words_until(&tokens[at + 1..], '}');
                at += 1 + length;
                let name = word.clone();
                series(Series { name, matched });
            }
            _ if is_name(word) && !OPERATORS.contains(&word.as_str()) => series(Series {
                name: word.clone(),
                matched: Vec::new(),
            }),
            _ => {}
        }
    }
}

fn is_aggregation(word: &str) -> bool {
    ["sum", "min", "max", "avg", "count", "topk", "bottomk"].contains(&word)
}

/// Returns all selectors of an expression.
pub fn series(expression: &str) -> Vec<Series> {
    let mut found = Vec::new();
    read(expression, |series| found.push(series), |_| {});
    found
}

/// Returns the labels of `by`, `on` and their like.
pub fn labels_of_groupings(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    read(expression, |_| {}, |labels| found.extend(labels));
    found
}

#[test]
fn metrics_and_labels_of_an_expression_are_found() {
    let expression = "histogram_quantile(0.9, sum by (a, le) (rate(x_bucket{b=~\"c|d\", e!=\"\"}[5m]))) > 3 * 3600 \
                      and on (f) absent(y) or time() - z";
    let names: Vec<(String, Vec<String>)> = series(expression).into_iter().map(|s| (s.name, s.matched)).collect();
    let expected = [("x_bucket", vec!["b", "e"]), ("y", vec![]), ("z", vec![])];
    let expected = expected.map(|(name, matched)| (name.to_owned(), matched.into_iter().map(str::to_owned).collect()));
    assert_eq!(names, expected);
    assert_eq!(labels_of_groupings(expression), ["a", "le", "f"]);
}
