//! The page to which a person returns after the sign-in.

use crate::serve::problem::Problem;

/// Returns a path of this site, or `default` if none is given. Refuses what a browser would read as another host.
pub(super) fn path_after_sign_in(given: Option<&str>, default: String) -> Result<String, Problem> {
    match given {
        None | Some("") => Ok(default),
        Some(path) if is_local(path) => Ok(path.to_owned()),
        Some(_) => Err(Problem::parameter(
            "next",
            "next must be a path of this site, such as /repositories; open the page that you want instead",
        )),
    }
}

/// Browsers read `//host` and `/\host` as another host, and skip control characters.
fn is_local(path: &str) -> bool {
    let is_path = path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/\\");
    is_path && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(given: Option<&str>) -> Option<String> {
        path_after_sign_in(given, "/catalog/".to_owned()).ok()
    }

    #[test]
    fn the_next_page_is_one_of_this_site() {
        for path in ["/", "/charts/a/b/c?tab=values#x", "/a//b", "/login"] {
            assert_eq!(next(Some(path)).as_deref(), Some(path));
        }
        for default in [None, Some("")] {
            assert_eq!(next(default).as_deref(), Some("/catalog/"));
        }
    }

    #[test]
    fn a_foreign_page_is_refused() {
        for path in [
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "\n//evil.example",
            "https://evil.example",
            "evil.example",
            "javascript:alert(1)",
            " /charts",
            "/a b",
            "/a\r\nSet-Cookie: x=y",
            "/\u{202e}",
            "?x",
        ] {
            assert_eq!(next(Some(path)), None, "{path}");
        }
    }
}
