//! `portolan outdated`: the releases of the cluster, compared with the catalog.

mod judgements;
mod view;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::flags::database::DatabaseFlags;
use super::flags::non_empty;
use super::server::ServerFlags;
use super::{Error, failed_to, output};
use crate::releases::cluster::{self, Limits, Scope};
use crate::releases::{JudgedRelease, Match, RepositoryName, Status, Verdict};
use crate::text::sanitize_lines;

/// Show which installed charts are out of date, withdrawn or deprecated
///
/// Reads releases of Helm, HelmReleases and OCIRepositories of Flux, and Applications of Argo CD with your rights, and compares
/// them with the catalog: the database, or with --server that of `portolan serve`, which gets names, versions and URLs of charts only.
///
/// STATUS is the largest step to a newer version: patch, minor or major; current if there is none. `withdrawn` is a version that
/// the repository lists no more, although it lists older and newer ones; `not-listed` is any other version that it does not list.
/// A chart that several repositories have is `ambiguous`: -o wide lists them, and --prefer decides. `unknown` charts are in no
/// repository.
///
/// Kinds of releases that cannot be read are named on the standard error output. It is a failure (exit code 1) only if there are
/// no others.
#[derive(Args, Debug)]
pub struct Outdated {
    /// Namespaces of the releases, separated by commas (default: all namespaces)
    #[arg(long, short, value_name = "NAMESPACE", value_delimiter = ',')]
    namespace: Vec<String>,
    /// All namespaces, whatever --namespace is
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Repositories that decide if several have a chart, separated by commas, the first one first
    #[arg(long, value_name = "NAMESPACE/REPOSITORY", value_delimiter = ',')]
    prefer: Vec<RepositoryName>,
    /// Also compare with prereleases; always done for a release that is one
    #[arg(long)]
    devel: bool,
    /// Fail with exit code 3 if a release is at this level or a higher one
    #[arg(long, value_name = "LEVEL", value_enum)]
    fail_on: Option<Level>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    database: DatabaseFlags,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// Human-readable table
    #[default]
    Table,
    /// Table with all steps, and all repositories of an ambiguous chart
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// From the lowest to the highest.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// A newer patch
    Patch,
    /// A newer minor version
    Minor,
    /// A newer major version
    Major,
    /// The installed version was withdrawn
    Withdrawn,
}

impl Level {
    fn is_reached(self, verdict: &Verdict) -> bool {
        match self {
            Self::Withdrawn => verdict.status == Status::Withdrawn,
            Self::Major => verdict.newest_major.is_some() || Self::Withdrawn.is_reached(verdict),
            Self::Minor => verdict.newest_minor.is_some() || Self::Major.is_reached(verdict),
            Self::Patch => verdict.newest_patch.is_some() || Self::Minor.is_reached(verdict),
        }
    }
}

impl Outdated {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let client = self.server.cluster.client().await?;
        let server = self.server.client().await?;
        let listing = cluster::list(&client, &self.scope(), Limits::default()).await?;
        for problem in &listing.unreadable {
            output::print_failure(&format!("not read: {problem}"));
        }
        let releases = self.judge(server.as_ref(), listing.releases).await?;
        self.print(&releases)?;
        hint_at_ambiguous(&releases);
        self.check_level(&releases)
    }

    fn scope(&self) -> Scope {
        let namespaces = self.namespace.iter().filter(|_| !self.all_namespaces);
        let namespaces = namespaces.filter_map(|name| non_empty(Some(name)));
        Scope {
            namespaces: namespaces.map(str::to_owned).collect(),
        }
    }

    fn print(&self, releases: &[JudgedRelease]) -> Result<(), Error> {
        match self.output {
            Format::Json => output::print_json(&releases),
            Format::Yaml => {
                let document = serde_yaml::to_string(releases).map_err(failed_to("format the releases as YAML"))?;
                output::print(&sanitize_lines(&document, document.len()))
            }
            Format::Table | Format::Wide if releases.is_empty() => output::print("no releases found\n"),
            Format::Table => output::print(&view::table(releases)),
            Format::Wide => output::print(&view::wide_table(releases)),
        }
    }

    fn check_level(&self, releases: &[JudgedRelease]) -> Result<(), Error> {
        let Some(level) = self.fail_on else { return Ok(()) };
        let verdicts = releases.iter().filter_map(|release| release.judgement.verdict.as_ref());
        let name = level.to_possible_value();
        let name = name.as_ref().map_or("this level", PossibleValue::get_name);
        match verdicts.filter(|verdict| level.is_reached(verdict)).count() {
            0 => Ok(()),
            1 => Err(Error::Found(format!("1 release is at level {name} or higher"))),
            count => Err(Error::Found(format!("{count} releases are at level {name} or higher"))),
        }
    }
}

fn hint_at_ambiguous(releases: &[JudgedRelease]) {
    let is_ambiguous = |release: &&JudgedRelease| release.judgement.matched == Match::Ambiguous;
    match releases.iter().filter(is_ambiguous).count() {
        0 => {}
        count => eprintln!(
            "releases whose chart is in several repositories: {count}; -o wide lists them, --prefer NAMESPACE/REPOSITORY \
             decides"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_reached_by_itself_and_by_higher_ones() {
        let verdict = |status, [patch, minor, major]: [bool; 3]| Verdict {
            status,
            newest_patch: patch.then(|| "1.0.1".to_owned()),
            newest_minor: minor.then(|| "1.1.0".to_owned()),
            newest_major: major.then(|| "2.0.0".to_owned()),
            deprecated: true,
        };
        let reached = |status, newer| {
            let verdict = verdict(status, newer);
            let levels = [Level::Patch, Level::Minor, Level::Major, Level::Withdrawn];
            levels.map(|level| level.is_reached(&verdict))
        };
        assert_eq!(reached(Status::Current, [false; 3]), [false; 4]);
        assert_eq!(
            reached(Status::Patch, [true, false, false]),
            [true, false, false, false]
        );
        assert_eq!(reached(Status::Minor, [false, true, false]), [true, true, false, false]);
        assert_eq!(reached(Status::Major, [true, true, true]), [true, true, true, false]);
        assert_eq!(
            reached(Status::NotListed, [false, true, false]),
            [true, true, false, false]
        );
        assert_eq!(reached(Status::Withdrawn, [false; 3]), [true; 4]);
    }
}
