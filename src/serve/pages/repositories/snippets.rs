//! Commands and manifests that use a repository. Names are encoded as in URLs, so that none of them is shell or YAML.

use crate::api::NamespacedName;
use crate::serve::links::segment;

/// A text to copy.
pub(super) struct Snippet {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) text: String,
}

/// Returns the snippets for a repository below `base`, such as `https://charts.example/helm`. Without credentials for a caller
/// who has none.
pub(super) fn snippets(base: &str, repository: &NamespacedName, has_credentials: bool) -> [Snippet; 3] {
    let [namespace, name] = [&repository.namespace, &repository.name].map(|name| segment(name));
    let url = format!("{base}/{namespace}/{name}");
    [
        helm(&url, &namespace, &name, has_credentials),
        flux(&url, &namespace, &name, has_credentials),
        argo_cd(&url, &namespace, &name, has_credentials),
    ]
}

/// Returns the command that installs a version of a chart of the index. `None` if a command line would read the name or the
/// version as something else.
pub(in crate::serve::pages) fn install(
    base: &str,
    repository: &NamespacedName,
    [chart, version]: [&str; 2],
    has_credentials: bool,
) -> Option<String> {
    let is_word = |text: &str| {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "._+/-".contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_safe)
    };
    if !is_word(chart) || !is_word(version) {
        return None;
    }
    let [namespace, name] = [&repository.namespace, &repository.name].map(|name| segment(name));
    let release = release_name(chart);
    let credentials = credentials(&namespace, has_credentials);
    Some(format!(
        "helm install {release} {chart} --version {version} \\\n  --repo {base}/{namespace}/{name}{credentials}"
    ))
}

/// Returns the last part of the name of a chart, unless Helm refuses it as the name of a release.
fn release_name(chart: &str) -> &str {
    let name = chart.rsplit('/').next().unwrap_or(chart);
    let is_safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_name = name.len() <= 53
        && name.chars().all(is_safe)
        && name
            .split('.')
            .all(|part| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-'));
    if is_name { name } else { "RELEASE" }
}

/// Returns the flags of Helm that send a token of a ServiceAccount.
fn credentials(namespace: &str, has_credentials: bool) -> String {
    if !has_credentials {
        return String::new();
    }
    format!(" \\\n  --username x --password \"$(kubectl create token charts --namespace {namespace} --duration=1h)\"")
}

fn helm(url: &str, namespace: &str, name: &str, has_credentials: bool) -> Snippet {
    let credentials = credentials(namespace, has_credentials);
    Snippet {
        id: "use-helm",
        title: "helm",
        note: if has_credentials {
            "Repeat the command with --force-update when the token has expired."
        } else {
            ""
        },
        text: format!("helm repo add {name} {url}{credentials}\nhelm search repo {name}/"),
    }
}

fn flux(url: &str, namespace: &str, name: &str, has_credentials: bool) -> Snippet {
    let secret = if has_credentials {
        "\n  secretRef:\n    name: catalog"
    } else {
        ""
    };
    Snippet {
        id: "use-flux",
        title: "Flux",
        note: if has_credentials {
            "The Secret catalog has the keys username, with any value, and password, with a token. Tokens expire: renew it \
             before, such as by a CronJob."
        } else {
            ""
        },
        text: format!(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata:\n  name: \"{name}\"\n  \
             namespace: \"{namespace}\"\nspec:\n  url: {url}\n  interval: 10m{secret}"
        ),
    }
}

fn argo_cd(url: &str, namespace: &str, name: &str, has_credentials: bool) -> Snippet {
    let credentials = if has_credentials {
        "\n  username: x\n  password: TOKEN"
    } else {
        ""
    };
    Snippet {
        id: "use-argo-cd",
        title: "Argo CD",
        note: if has_credentials {
            "Replace TOKEN. Tokens expire: renew the Secret before."
        } else {
            ""
        },
        text: format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: \"{namespace}-{name}\"\n  namespace: argocd\n  labels:\n    \
             argocd.argoproj.io/secret-type: repository\nstringData:\n  name: \"{name}\"\n  type: helm\n  url: {url}{credentials}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(repository: &NamespacedName, has_credentials: bool) -> [String; 3] {
        snippets("https://charts.example/helm", repository, has_credentials).map(|snippet| snippet.text)
    }

    #[test]
    fn callers_with_a_token_get_commands_with_credentials() {
        let stable = NamespacedName::new("team-a", "stable");
        let [helm, flux, argo_cd] = texts(&stable, true);
        assert_eq!(
            helm,
            "helm repo add stable https://charts.example/helm/team-a/stable \\\n  --username x --password \
             \"$(kubectl create token charts --namespace team-a --duration=1h)\"\nhelm search repo stable/"
        );
        assert!(
            flux.ends_with("interval: 10m\n  secretRef:\n    name: catalog"),
            "{flux}"
        );
        assert!(argo_cd.ends_with("\n  username: x\n  password: TOKEN"), "{argo_cd}");
        for text in texts(&stable, false) {
            assert!(!text.contains("password") && !text.contains("secretRef"), "{text}");
        }
    }

    #[test]
    fn an_installation_names_the_chart_the_version_and_the_repository() {
        let stable = NamespacedName::new("team-a", "stable");
        let command = |chart, version, has_credentials| {
            install(
                "https://charts.example/helm",
                &stable,
                [chart, version],
                has_credentials,
            )
        };
        assert_eq!(
            command("web", "1.0.0+b.1", true).unwrap(),
            "helm install web web --version 1.0.0+b.1 \\\n  --repo https://charts.example/helm/team-a/stable \\\n  --username x \
             --password \"$(kubectl create token charts --namespace team-a --duration=1h)\""
        );
        let nested = command("team/Web_1", "1.0.0", false).unwrap();
        assert!(
            nested.starts_with("helm install RELEASE team/Web_1 --version 1.0.0 \\\n"),
            "{nested}"
        );
        for hostile in [
            "",
            "--post-renderer=sh",
            "-x",
            "a b",
            "a;id",
            "$(id)",
            "`id`",
            "a'b",
            "../a",
            "a\nb",
            "\u{202e}a",
        ] {
            assert_eq!(command(hostile, "1.0.0", true), None, "{hostile:?}");
            assert_eq!(command("web", hostile, true), None, "{hostile:?}");
        }
    }

    #[test]
    fn snippets_are_yaml_and_names_are_not_commands() {
        for text in texts(&NamespacedName::new("a", "x; rm -rf ~\n$(id)"), true) {
            assert!(!text.contains("rm -rf") && !text.contains("$(id)"), "{text}");
        }
        let [_, flux, argo_cd] = texts(&NamespacedName::new("team-a", "stable"), true);
        for manifest in [flux, argo_cd] {
            let parsed: serde_yaml::Value = serde_yaml::from_str(&manifest).unwrap();
            assert!(parsed["kind"].is_string(), "{manifest}");
        }
    }
}
