use clap::Args;

use crate::api::is_object_name;
use crate::cmd::Error;

/// Sinks of the operator: each takes a row of the outbox for each change of each repository.
const MAX_SINKS: usize = 8;

#[derive(Args, Debug)]
#[command(next_help_heading = "News")]
pub struct NewsFlags {
    /// Secrets in --namespace, at most 8, that the news of all repositories goes to besides those of the annotation
    /// portolan.dev/news, separated by commas
    #[arg(long, value_name = "SECRETS", value_delimiter = ',')]
    pub news: Vec<String>,
    /// Deliver news to sinks at private addresses, such as Flux's Receivers in this cluster
    #[arg(long)]
    pub news_private_networks: bool,
}

impl NewsFlags {
    /// Returns the Secrets as `namespace/name`.
    pub fn sinks(&self, namespace: &str) -> Result<Vec<String>, Error> {
        let mut names: Vec<&str> = self.news.iter().map(|name| name.trim()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        if let Some(invalid) = names.iter().find(|name| !is_object_name(name)) {
            return Err(Error::Usage(format!(
                "invalid value for --news: `{invalid}` is not the name of a Secret"
            )));
        }
        if names.len() > MAX_SINKS {
            return Err(Error::Usage(format!("--news takes at most {MAX_SINKS} Secrets")));
        }
        Ok(names.into_iter().map(|name| format!("{namespace}/{name}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sinks(news: &[&str]) -> Result<Vec<String>, Error> {
        let news = news.iter().map(|name| (*name).to_owned()).collect();
        let flags = NewsFlags {
            news,
            news_private_networks: false,
        };
        flags.sinks("ops")
    }

    #[test]
    fn secrets_of_the_operator_are_in_its_namespace() {
        assert_eq!(sinks(&[" b", "a", "", "b"]).unwrap(), ["ops/a", "ops/b"]);
        assert!(sinks(&["team/a"]).is_err());
        assert!(sinks(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]).is_err());
    }
}
