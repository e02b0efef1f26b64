//! The parameters of a request, and the cursors that continue a list.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use crate::serve::problem::Problem;
use crate::text::hex;

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;
const MAX_VALUE_BYTES: usize = 1024;
/// A cursor holds the names of a chart.
const MAX_CURSOR_BYTES: usize = 6 * 1024;

const LIMIT: &str = "limit";
const CURSOR: &str = "cursor";

pub(in crate::serve) struct Parameters {
    values: BTreeMap<&'static str, String>,
    /// Of the list and its parameters, so that a cursor continues this list only.
    hash: String,
}

impl Parameters {
    /// Parses the query of a list. `of` names it, and `known` its parameters besides `limit` and `cursor`.
    pub(in crate::serve) fn list(query: Option<&str>, of: &str, known: &[&'static str]) -> Result<Self, Problem> {
        Self::parse(query, of, &[known, &[LIMIT, CURSOR]].concat())
    }

    /// Parses the query of a single resource.
    pub(in crate::serve) fn only(query: Option<&str>, known: &[&'static str]) -> Result<Self, Problem> {
        Self::parse(query, "", known)
    }

    fn parse(query: Option<&str>, of: &str, known: &[&'static str]) -> Result<Self, Problem> {
        let mut values = BTreeMap::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let Some(name) = known.iter().copied().find(|name| **name == *key) else {
                let names = known.join(", ");
                return Err(Problem::query(format!("unknown parameter; use {names}")));
            };
            let limit = if name == CURSOR {
                MAX_CURSOR_BYTES
            } else {
                MAX_VALUE_BYTES
            };
            if value.len() > limit {
                let detail = format!("the value of {name} takes more than {limit} bytes");
                return Err(Problem::parameter(name, detail));
            }
            if value.trim().is_empty() {
                continue;
            }
            if values.insert(name, value.into_owned()).is_some() {
                return Err(Problem::parameter(name, format!("{name} is given twice")));
            }
        }
        let mut digest = Sha256::new_with_prefix(of);
        for (name, value) in &values {
            if ![LIMIT, CURSOR].contains(name) {
                digest.update([0]);
                digest.update(name);
                digest.update(value.len().to_be_bytes());
                digest.update(value);
            }
        }
        let hash = hex(&digest.finalize()).chars().take(16).collect();
        Ok(Self { values, hash })
    }

    pub(in crate::serve) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(in crate::serve) fn required(&self, name: &'static str) -> Result<&str, Problem> {
        let value = self.get(name);
        value.ok_or_else(|| Problem::parameter(name, format!("{name} is required")))
    }

    pub(in crate::serve) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get(LIMIT) else {
            return Ok(DEFAULT_LIMIT);
        };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| Problem::parameter(LIMIT, format!("limit must be a number from 1 to {MAX_LIMIT}")))
    }

    /// Returns the position after which the list continues; `None` at its beginning.
    pub(in crate::serve) fn cursor<P: DeserializeOwned>(&self) -> Result<Option<P>, Problem> {
        let Some(text) = self.get(CURSOR) else {
            return Ok(None);
        };
        let decoded = URL_SAFE_NO_PAD.decode(text).ok();
        let decoded = decoded.and_then(|json| serde_json::from_slice::<(String, P)>(&json).ok());
        match decoded {
            Some((hash, position)) if hash == self.hash => Ok(Some(position)),
            _ => Err(Problem::parameter(
                CURSOR,
                "the cursor does not belong to this list; use `next` of a response with the same parameters",
            )),
        }
    }

    /// Returns the cursor that continues after `position`.
    pub(in crate::serve) fn next(&self, position: &impl Serialize) -> Result<String, Problem> {
        let json = serde_json::to_vec(&(&self.hash, position)).map_err(|_| Problem::internal())?;
        Ok(URL_SAFE_NO_PAD.encode(json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Parameters, Problem> {
        Parameters::list(Some(query), "charts", &["q", "sort"])
    }

    #[test]
    fn a_cursor_continues_the_same_list_only() {
        let list = parse("q=web&limit=2").unwrap();
        let next = list.next(&("web", 3)).unwrap();
        let same = parse(&format!("cursor={next}&limit=9&q=web")).unwrap();
        assert_eq!(same.cursor::<(String, u32)>().unwrap(), Some(("web".to_owned(), 3)));
        for other in ["q=redis", "q=web&sort=name", "limit=2"] {
            let other = parse(&format!("{other}&cursor={next}")).unwrap();
            assert!(other.cursor::<(String, u32)>().is_err());
        }
        let forged = parse("q=web&cursor=AAAA").unwrap();
        assert!(forged.cursor::<(String, u32)>().is_err());
        assert!(list.cursor::<(String, u32)>().unwrap().is_none());
    }

    #[test]
    fn values_are_decoded_and_empty_ones_are_absent() {
        let list = parse("q=a%2Fb+c&sort=").unwrap();
        assert_eq!((list.get("q"), list.get("sort")), (Some("a/b c"), None));
        assert_eq!(list.limit().unwrap(), DEFAULT_LIMIT);
    }

    #[test]
    fn a_single_resource_has_no_pages_and_may_require_a_parameter() {
        let only = |query: &str| Parameters::only(Some(query), &["from", "to"]);
        let diff = only("from=1.0.0").unwrap();
        assert_eq!(diff.required("from").unwrap(), "1.0.0");
        assert!(diff.required("to").is_err());
        assert!(only("limit=2").is_err());
    }

    #[test]
    fn unknown_repeated_and_long_parameters_are_refused() {
        for query in ["page=2", "q=a&q=b", &format!("q={}", "x".repeat(MAX_VALUE_BYTES + 1))] {
            assert!(parse(query).is_err(), "{query}");
        }
        for limit in ["0", "201", "-1", "many"] {
            assert!(parse(&format!("limit={limit}")).unwrap().limit().is_err(), "{limit}");
        }
        assert_eq!(parse("limit=200").unwrap().limit().unwrap(), 200);
    }
}
