use rstest::rstest;

use super::*;

/// Of [`BODY`], signed with [`TOKEN`].
const SHA256: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
/// The example of Standard Webhooks.
const WEBHOOK_TOKEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WEBHOOK_BODY: &str = r#"{"test": 2432232314}"#;
const WEBHOOK: [(&str, &str); 3] = [
    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
    ("webhook-timestamp", "1614265330"),
    (
        "webhook-signature",
        "v1a,other v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
];

fn verify(type_: &str, token: &str, sent: &[(&str, &str)], body: &str, seconds: i64) -> Result<(), Mismatch> {
    let receiver = receiver(&name("team-a", "stable"), type_, token).unwrap();
    let headers = headers(sent);
    let now = Timestamp::from_second(seconds).unwrap();
    receiver.verify_headers(&headers)?;
    receiver.verify_body(&headers, body.as_bytes(), now)
}

#[rstest]
#[case::generic_hmac("generic-hmac", &[("X-Signature", SHA256)])]
#[case::upper_case("generic-hmac", &[("X-Signature", "sha256=757107EA0EB2509FC211221CCE984B8A37570B6D7586C22C46F4379C8B043E17")])]
#[case::generic_hmac_with_sha512("generic-hmac", &[("X-Signature", "sha512=11ed355a617e98134e842012a7944ccf59c10256cb182357bd7e3a42013ff07c376f8c14cf5cc1923da20b51d64256b2fb8ebbf100aa67a61326f61fea8111bc")])]
#[case::github("github", &[("X-Hub-Signature-256", SHA256), ("X-GitHub-Event", "push")])]
#[case::gitlab("gitlab", &[("X-Gitlab-Token", TOKEN)])]
#[case::harbor("harbor", &[("Authorization", TOKEN)])]
#[case::distribution("distribution", &[("Authorization", TOKEN)])]
#[case::generic("generic", &[])]
fn each_type_accepts_what_its_sender_documents(#[case] type_: &str, #[case] sent: &[(&str, &str)]) {
    assert_eq!(verify(type_, TOKEN, sent, BODY, 0), Ok(()));
    let other = "another token of a tenant";
    let refused = verify(type_, other, sent, BODY, 0);
    assert_eq!(refused.is_err(), type_ != "generic", "a token of another repository");
    assert_eq!(
        verify(type_, TOKEN, &[], BODY, 0).is_err(),
        type_ != "generic",
        "nothing is signed"
    );
}

#[rstest]
#[case::another_body("generic-hmac", &[("X-Signature", SHA256)])]
#[case::without_algorithm("generic-hmac", &[("X-Signature", &SHA256[7..])])]
#[case::old_algorithm("github", &[("X-Hub-Signature-256", "sha1=757107ea0eb2509fc211221cce984b8a37570b6d")])]
#[case::sha512_is_not_githubs("github", &[("X-Hub-Signature-256", "sha512=00")])]
#[case::part_of_the_token("harbor", &[("Authorization", &TOKEN[..10])])]
#[case::header_of_another_type("gitlab", &[("Authorization", TOKEN)])]
#[case::token_beside_a_wrong_signature("gitlab", &[("X-Gitlab-Token", TOKEN), ("webhook-signature", "v1,AAAA")])]
fn a_wrong_signature_is_refused(#[case] type_: &str, #[case] sent: &[(&str, &str)]) {
    assert!(verify(type_, TOKEN, sent, "Hello, World?", 0).is_err());
}

#[test]
fn the_key_of_an_address_signs_no_body() {
    let name = name("team-a", "stable");
    for (type_, header) in [("generic-hmac", "X-Signature"), ("github", "X-Hub-Signature-256")] {
        let path = receiver(&name, type_, TOKEN).unwrap().path(&name);
        let signature = format!("sha256={}", path.rsplit('/').next().unwrap());
        let refused = verify(type_, TOKEN, &[(header, signature.as_str())], "team-a/stable", 0);
        assert!(matches!(refused, Err(Mismatch::Wrong(_))), "{type_}: {refused:?}");
    }
}

#[test]
fn a_signed_webhook_of_gitlab_is_valid_for_5_minutes() {
    let verify = |seconds: i64| verify("gitlab", WEBHOOK_TOKEN, &WEBHOOK, WEBHOOK_BODY, 1_614_265_330 + seconds);
    for seconds in [-300, 0, 300] {
        assert_eq!(verify(seconds), Ok(()), "{seconds}");
    }
    for seconds in [-301, 301] {
        assert_eq!(verify(seconds), Err(Mismatch::Late), "{seconds}");
    }
    let mut later = WEBHOOK;
    later[1].1 = "1614265331";
    let refused = self::verify("gitlab", WEBHOOK_TOKEN, &later, WEBHOOK_BODY, 1_614_265_331);
    assert_eq!(refused, Err(Mismatch::Wrong("webhook-signature")), "the time is signed");
}

#[test]
fn pulls_from_a_registry_are_no_changes() {
    let receiver = |type_: &str| receiver(&name("team-a", "stable"), type_, TOKEN).unwrap();
    let distribution = |actions: &[&str]| {
        let events: Vec<_> = actions
            .iter()
            .map(|action| serde_json::json!({ "id": "1", "action": action }))
            .collect();
        receiver("distribution").is_change(serde_json::json!({ "events": events }).to_string().as_bytes())
    };
    assert!(!distribution(&["pull", "pull"]));
    let changes: [&[&str]; 4] = [&["push"], &["pull", "push"], &["delete"], &[]];
    for changes in changes {
        assert!(distribution(changes), "{changes:?}");
    }
    let harbor = |type_: &str| {
        let event = serde_json::json!({ "type": type_, "occur_at": 1_586_922_308, "event_data": {} });
        receiver("harbor").is_change(event.to_string().as_bytes())
    };
    assert!(harbor("PUSH_ARTIFACT") && harbor("harbor.artifact.pushed") && harbor("DELETE_ARTIFACT"));
    assert!(!harbor("PULL_ARTIFACT") && !harbor("harbor.artifact.pulled"));
    assert!(receiver("harbor").is_change(b"no JSON"));
    assert!(receiver("generic").is_change(br#"{ "type": "PULL_ARTIFACT" }"#));
}

#[test]
fn a_secret_without_type_or_with_a_short_or_long_token_is_no_receiver() {
    let name = name("team-a", "stable");
    let error = |type_: &str, token: &str| receiver(&name, type_, token).unwrap_err().to_string();
    assert!(error("nexus", TOKEN).contains("nexus"));
    assert!(error("", TOKEN).contains("no valid `type`; use"));
    let long = "0".repeat(1025);
    for refused in ["", "0123456789abcde", "0123456789abcde\n", &long] {
        let error = error("generic", refused);
        assert!(
            error.contains("at least 16 bytes and at most 1024"),
            "{refused}: {error}"
        );
    }
    let [plain, file] = [TOKEN.to_owned(), format!("{TOKEN}\n")];
    let path = |token: &str| receiver(&name, "generic\n", token).unwrap().path(&name);
    assert_eq!(path(&plain), path(&file));
    let printed = format!("{:?}", receiver(&name, "generic", TOKEN).unwrap());
    assert!(
        !printed.contains("Secret") && !printed.contains(&path(TOKEN)),
        "{printed}"
    );
}
