//! The annotations that record who wrote an Application.

use k8s_openapi::api::authentication::v1::UserInfo;

use crate::api::oam::labels::{GROUP_ANNOTATION, USER_ANNOTATION};
use crate::controllers::oam::ReviewOptions;
use crate::controllers::oam::rights::{Identity, IdentityError};
use crate::text::matches_wildcards;
use crate::text::{sanitize, truncate};

pub const SERVICE_ACCOUNT_REFUSED: &str = "service-account annotation is not permitted when authentication enabled";

/// Bytes of a name in an error.
const MAX_SHOWN: usize = 100;

#[derive(Debug, PartialEq, Eq)]
pub struct RecordedIdentity {
    /// `None` removes the annotation, which others may have forged.
    pub user: Option<String>,
    /// Groups separated by commas; empty without groups.
    pub groups: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The Application would be refused later.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error(
        "user {} can't be recorded in annotation {USER_ANNOTATION}, because it begins or ends with a blank",
        shown(.0)
    )]
    User(String),
    #[error(
        "group {} can't be recorded in annotation {GROUP_ANNOTATION}, because it contains a comma, or begins or ends with a \
         blank; change the group, or leave it out by --authentication-group-pattern",
        shown(.0)
    )]
    Group(String),
}

fn shown(name: &str) -> String {
    format!("{:?}", truncate(&sanitize(name), MAX_SHOWN))
}

/// Returns what the annotations have to say.
///
/// # Errors
/// The controller would read another identity from the annotations, or none.
pub fn recorded_identity(user: &UserInfo, options: &ReviewOptions) -> Result<RecordedIdentity, RecordError> {
    let groups = user.groups.iter().flatten();
    let groups = groups.filter(|group| matches_wildcards(&options.group_pattern, group));
    let groups: Vec<String> = groups.filter(|group| !group.is_empty()).cloned().collect();
    // A comma would make two groups of one.
    if let Some(group) = groups.iter().find(|group| group.contains(',') || !is_trimmed(group)) {
        return Err(RecordError::Group(group.clone()));
    }
    let name = user.username.as_deref().unwrap_or_default();
    if options.records_user && !is_trimmed(name) {
        return Err(RecordError::User(name.to_owned()));
    }
    // Groups go with a user, here with any.
    let impersonated = if options.records_user { name } else { "user" };
    let identity = Identity::new(impersonated.to_owned(), groups)?;
    Ok(RecordedIdentity {
        groups: identity.groups().join(","),
        user: options.records_user.then(|| identity.user().to_owned()),
    })
}

fn is_trimmed(name: &str) -> bool {
    name.trim() == name
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn recorded(
        user: &str,
        groups: &[&str],
        pattern: &str,
        records_user: bool,
    ) -> Result<RecordedIdentity, RecordError> {
        let user = UserInfo {
            username: Some(user.to_owned()),
            groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
            ..UserInfo::default()
        };
        let options = ReviewOptions {
            records_user,
            group_pattern: pattern.to_owned(),
            ..ReviewOptions::default()
        };
        recorded_identity(&user, &options)
    }

    #[rstest]
    #[case::of_kubevela("kubevela:*", "kubevela:a,kubevela:b:c")]
    #[case::anchored_at_both_ends("*:a", "kubevela:a,x-kubevela:a")]
    #[case::in_the_middle("k*:*:c", "kubevela:b:c")]
    #[case::all("*", "kubevela:a,kubevela:b:c,x-kubevela:a,system:masters")]
    #[case::exact("system:masters", "system:masters")]
    #[case::none("", "")]
    fn groups_that_match_the_whole_pattern_are_recorded(#[case] pattern: &str, #[case] expected: &str) {
        let groups = ["kubevela:a", "kubevela:b:c", "x-kubevela:a", "system:masters"];
        let identity = recorded("alice", &groups, pattern, false).unwrap();
        assert_eq!((identity.user, identity.groups.as_str()), (None, expected));
    }

    #[test]
    fn the_user_is_recorded_on_request_only() {
        let identity = recorded("system:serviceaccount:ns:a", &[], "*", true).unwrap();
        assert_eq!(identity.user.as_deref(), Some("system:serviceaccount:ns:a"));
        assert_eq!(recorded("alice", &[], "*", false).unwrap().user, None);
    }

    #[rstest]
    #[case::two_groups_in_one("alice", "kubevela:a,system:masters", "contains a comma")]
    #[case::another_group_once_it_is_trimmed(
        "alice",
        "kubevela:a ",
        "contains a comma, or begins or ends with a blank"
    )]
    #[case::a_header_in_a_group("alice", "kubevela:a\nb", "control characters")]
    #[case::another_user_once_it_is_trimmed(" admin", "kubevela:a", "user \" admin\" can't be recorded")]
    #[case::a_header_in_a_user("a\nb", "kubevela:a", "control characters")]
    #[case::nobody("", "kubevela:a", "the user in annotation")]
    fn names_that_the_controller_would_read_differently_are_refused(
        #[case] user: &str,
        #[case] group: &str,
        #[case] expected: &str,
    ) {
        let error = recorded(user, &[group], "kubevela:*", true).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_name_that_is_not_recorded_is_not_checked() {
        assert!(recorded(" admin", &["a,b"], "kubevela:*", false).is_ok());
    }

    #[test]
    fn names_too_long_or_too_many_to_impersonate_are_refused() {
        assert!(recorded(&"a".repeat(1025), &[], "*", true).is_err());
        assert!(recorded("alice", &[&"a".repeat(1025)], "*", false).is_err());
        assert!(recorded("alice", &["a"; 65], "*", false).is_err());
        assert!(recorded("alice", &["a"; 64], "*", false).is_ok());
    }
}
