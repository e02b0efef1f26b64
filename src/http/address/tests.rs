use rstest::rstest;

use super::*;

fn public_only() -> Policy {
    Policy {
        allow_private_networks: false,
        ..Policy::default()
    }
}

fn without_loopback() -> Policy {
    Policy {
        allow_loopback: false,
        ..Policy::default()
    }
}

fn is_refused(policy: &Policy, host: &str) -> bool {
    let url = format!("http://{host}/").parse().unwrap();
    let refused = policy.check_url(&url);
    if let Err(error) = &refused {
        assert_eq!((error.reason(), error.is_transient()), ("AddressRefused", false));
    }
    refused.is_err()
}

#[rstest]
#[case::link_local("169.254.169.254")]
#[case::end_of_the_range("169.254.255.255")]
#[case::as_a_number("2852039166")]
#[case::in_hexadecimal("0xA9FEA9FE")]
#[case::in_octal("0251.0376.0251.0376")]
#[case::with_three_parts("169.254.43518")]
#[case::mixed("0xa9.254.0251.0xfe")]
#[case::with_a_dot("169.254.169.254.")]
#[case::percent_encoded("%31%36%39.254.169.254")]
#[case::full_width("１６９。２５４。１６９。２５４")]
#[case::mapped("[::ffff:169.254.169.254]")]
#[case::mapped_in_hexadecimal("[::ffff:a9fe:a9fe]")]
#[case::compatible("[::169.254.169.254]")]
#[case::translated("[::ffff:0:a9fe:a9fe]")]
#[case::nat64("[64:ff9b::169.254.169.254]")]
#[case::own_nat64("[64:ff9b:1::a9fe:a9fe]")]
#[case::own_nat64_of_48_bits("[64:ff9b:1:a9fe:a9:fe00::]")]
#[case::own_nat64_of_56_bits("[64:ff9b:1:a9:fe:a9fe::]")]
#[case::own_nat64_of_64_bits("[64:ff9b:1:1:a9:fea9:fe00:0]")]
#[case::six_to_four("[2002:a9fe:a9fe::1]")]
#[case::teredo("[2001:0:1:2:3:4:5601:5601]")]
#[case::link_local_v6("[fe80::1]")]
#[case::end_of_link_local_v6("[febf::1]")]
#[case::amazon("[fd00:ec2::254]")]
#[case::pods_of_amazon("[fd00:ec2::23]")]
#[case::google("[fd20:ce::254]")]
#[case::oracle_v6("[fd00:c1::a9fe:a9fe]")]
#[case::scaleway("[fd00:42::42]")]
#[case::akamai("[fd00:a9fe:a9fe::1]")]
#[case::alibaba_v6("[fd00:100::100:200]")]
#[case::alibaba("100.100.100.200")]
#[case::azure("168.63.129.16")]
#[case::oracle("192.0.0.192")]
#[case::multicast("224.0.0.1")]
#[case::multicast_v6("[ff02::1]")]
#[case::broadcast("255.255.255.255")]
#[case::tencent("169.254.0.23")]
#[case::by_name("metadata.google.internal")]
#[case::azure_by_name("metadata.azure.internal")]
#[case::amazon_by_name("instance-data")]
#[case::tencent_by_name("metadata.tencentyun.com")]
#[case::by_name_with_a_dot("METADATA.google.internal.")]
fn metadata_and_link_local_addresses_are_refused_in_every_notation(#[case] host: &str) {
    assert!(is_refused(&Policy::default(), host) && is_refused(&public_only(), host));
}

#[rstest]
fn private_addresses_are_refused_only_if_private_networks_are_disabled(
    #[values(
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "[::]",
        "[::1]",
        "[fc00::1]",
        "[fd12::1]",
        "[fec0::1]",
        "[::ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::10.0.0.1]",
        "[64:ff9b:1::1]",
        "[2002:0a00:0001::]",
        "localhost",
        "a.localhost."
    )]
    host: &str,
) {
    assert!(!is_refused(&Policy::default(), host) && is_refused(&public_only(), host));
}

#[rstest]
fn loopback_and_unspecified_addresses_are_refused_by_their_own_setting(
    #[values(
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0",
        "0.0.0.0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:0.0.0.0]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "localhost",
        "LOCALHOST.",
        "a.localhost"
    )]
    host: &str,
) {
    assert!(!is_refused(&Policy::default(), host) && is_refused(&without_loopback(), host));
}

#[test]
fn other_private_addresses_do_not_count_as_loopback() {
    for host in ["10.0.0.1", "192.168.1.1", "[fd12::1]"] {
        assert!(!is_refused(&without_loopback(), host), "{host}");
    }
}

#[test]
fn only_the_port_of_the_api_server_is_refused() {
    let policy = Policy {
        api_server: Arc::new(ApiServer {
            names: vec![("api.example.com".to_owned(), 6443)],
            addresses: vec![
                "10.96.0.1:443".parse().unwrap(),
                "[::ffff:10.0.0.9]:6443".parse().unwrap(),
            ],
        }),
        ..Policy::default()
    };
    let is_refused = |url: &str| policy.check_url(&url.parse().unwrap()).is_err();
    for url in [
        "https://10.96.0.1/",
        "http://10.96.0.1:443/",
        "https://[::ffff:10.96.0.1]/",
        "https://[64:ff9b::10.96.0.1]/",
        "https://10.0.0.9:6443/",
        "https://API.example.com.:6443/",
    ] {
        assert!(is_refused(url), "{url}");
    }
    for url in [
        "http://10.96.0.1/",
        "https://10.96.0.2/",
        "https://10.0.0.9/",
        "https://api.example.com/",
    ] {
        assert!(!is_refused(url), "{url}");
    }
}

#[rstest]
fn public_addresses_are_allowed(
    #[values(
        "8.8.8.8",
        "1.1.1.1",
        "172.15.0.1",
        "172.32.0.1",
        "100.63.0.1",
        "100.128.0.1",
        "169.253.0.1",
        "223.0.0.1",
        "[2606:4700::1]",
        "[64:ff9b::8.8.8.8]",
        "[2002:0808:0808::1]",
        "[::ffff:8.8.8.8]",
        "charts.example.com",
        "metadata.example.com",
        "localhost.example.com"
    )]
    host: &str,
) {
    assert!(!is_refused(&Policy::default(), host) && !is_refused(&public_only(), host));
}
