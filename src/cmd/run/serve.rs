//! The server of the catalog in the process of the controllers.

use super::Run;
use crate::cmd::Error;
use crate::cmd::flags::non_empty;
use crate::cmd::flags::serve::{ServeContext, fixed_address};
use crate::controllers::apprepository;
use crate::manager::archives::ArchiveOptions;
use crate::manager::{CatalogAddress, CatalogOptions, ReleaseOptions};
use crate::releases::watched::WatchedReleases;

impl Run {
    pub(super) fn serves_catalog(&self) -> bool {
        let address = self.serve.as_deref().map(str::trim);
        let is_on = address.map_or(self.manifests.is_some(), |address| !address.is_empty());
        is_on && !self.syncing.once
    }

    /// Returns the options of the server. A directory of manifests is served unless `--serve` is empty, a cluster only with it.
    pub(super) fn catalog_server(
        &self,
        apprepository: Option<&apprepository::Options>,
    ) -> Result<Option<CatalogOptions>, Error> {
        if self.syncing.once {
            return Ok(None);
        }
        let address = match self.serve.as_deref().map(str::trim) {
            None if self.manifests.is_some() => CatalogAddress::FreePort,
            None => {
                if let Some(flag) = self.catalog.callers_flag() {
                    tracing::warn!("{flag} has no effect without --serve");
                }
                return Ok(None);
            }
            Some("") => return Ok(None),
            Some(address) => {
                self.refuse_replicas()?;
                fixed_address(address)?
            }
        };
        let Some(apprepository) = apprepository else {
            return Err(Error::Usage(format!(
                "--serve requires {} in --controllers, which fills the catalog",
                apprepository::NAME
            )));
        };
        let context = ServeContext {
            address,
            namespace: apprepository.namespace.as_deref(),
            global_repos_namespace: non_empty(self.global_repos_namespace.as_deref()),
            archives: self.catalog.fetches_archives().then(|| self.archives(apprepository)),
            spool_dir: self.fetch.spool_dir()?,
            has_manifests: self.manifests.is_some(),
        };
        self.catalog.options(context).map(Some)
    }

    /// Returns the options of the watch of releases, which are compared with the catalog.
    pub(super) fn releases(
        &self,
        apprepository: Option<&apprepository::Options>,
    ) -> Result<Option<ReleaseOptions>, Error> {
        if !self.releases || self.syncing.once {
            return Ok(None);
        }
        let Some(apprepository) = apprepository else {
            return Err(Error::Usage(format!(
                "--releases requires {} in --controllers, which fills the catalog",
                apprepository::NAME
            )));
        };
        Ok(Some(ReleaseOptions {
            namespace: apprepository.namespace.clone(),
            global_namespace: non_empty(self.global_repos_namespace.as_deref()).map(str::to_owned),
            watched: WatchedReleases::default(),
        }))
    }

    /// Archives are fetched as for an import.
    fn archives(&self, apprepository: &apprepository::Options) -> ArchiveOptions {
        ArchiveOptions {
            fetcher: apprepository.sync.fetcher.clone(),
            fetch_limits: apprepository.sync.fetch_limits,
            max_bytes: self.content.archive_max_bytes,
            kubeapps_namespace: apprepository.kubeapps_namespace.clone(),
            proxy_namespaces: apprepository.defaults.proxy_namespaces.clone(),
            allowed_directories: apprepository.allowed_directories.clone(),
        }
    }

    /// A standby opens no database, so its catalog would be empty.
    fn refuse_replicas(&self) -> Result<(), Error> {
        let flags = [
            ("--enable-leader-election", self.has_leader_election()),
            ("--shards", self.leader.shards.get() > 1),
        ];
        match flags.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((flag, _)) => Err(Error::Usage(format!(
                "--serve cannot be used with {flag}, which is for several replicas; run `portolan serve` beside them instead"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        run: Run,
    }

    fn catalog(flags: &[&str]) -> Result<Option<CatalogOptions>, Error> {
        let arguments = ["test", "--apiserver=http://x"].iter().chain(flags);
        let options = Test::try_parse_from(arguments).unwrap().run.options();
        options.map(|options| options.catalog)
    }

    fn address(flags: &[&str]) -> Option<CatalogAddress> {
        catalog(flags).unwrap().map(|catalog| catalog.address)
    }

    #[test]
    fn a_directory_of_manifests_is_served_unless_the_flag_is_empty_and_a_cluster_only_with_it() {
        let fixed = |text: &str| Some(CatalogAddress::Fixed(text.parse().unwrap()));
        assert_eq!(address(&["--manifests=."]), Some(CatalogAddress::FreePort));
        assert_eq!(address(&["--manifests=.", "--serve=127.0.0.1:1"]), fixed("127.0.0.1:1"));
        assert_eq!(address(&[]), None);
        assert_eq!(address(&["--serve=:8090"]), fixed(":8090"));
        for off in [
            &["--manifests=.", "--serve="][..],
            &["--manifests=.", "--once"],
            &["--once", "--serve=:1"],
            &["--serve="],
        ] {
            assert_eq!(address(off), None, "{off:?}");
        }
    }

    #[test]
    fn icons_are_stored_where_the_catalog_is_served_unless_a_flag_says_otherwise() {
        for (flags, expected) in [
            (&["--serve=:8090"][..], true),
            (&["--serve=:8090", "--icons=false"][..], false),
            (&["--manifests=."][..], true),
            (&["--manifests=.", "--serve="][..], false),
            (&["--manifests=.", "--once"][..], false),
            (&["--manifests=.", "--once", "--icons"][..], true),
            (&[][..], false),
        ] {
            let arguments = ["test", "--apiserver=http://x"].iter().chain(flags);
            let options = Test::try_parse_from(arguments).unwrap().run.options().unwrap();
            let options = options.apprepository.unwrap();
            assert_eq!(options.chart_files.icons, expected, "{flags:?}");
            let icons = ("icons".to_owned(), "true".to_owned());
            let of_jobs = options.jobs.map(|jobs| jobs.sync_flags.contains(&icons));
            assert!(of_jobs.is_none_or(|of_jobs| of_jobs == expected), "{flags:?}");
        }
    }

    #[test]
    fn what_can_not_be_served_is_invalid_usage() {
        for refused in [
            &["--serve=:8090", "--enable-leader-election"][..],
            &["--serve=:8090", "--controllers=application"],
            &["--serve=8090"],
            &["--serve=:8090", "--manifests=."],
            &["--anonymous=*", "--manifests=."],
        ] {
            assert!(matches!(catalog(refused), Err(Error::Usage(_))), "{refused:?}");
        }
    }

    #[test]
    fn releases_are_watched_in_a_cluster_only_and_only_with_the_flag() {
        let releases = |flags: &[&str]| {
            let arguments = ["test", "--apiserver=http://x"].iter().chain(flags);
            let options = Test::try_parse_from(arguments).unwrap().run.options();
            options.map(|options| options.releases.map(|releases| releases.namespace))
        };
        assert_eq!(releases(&[]).unwrap(), None);
        assert_eq!(releases(&["--releases"]).unwrap(), Some(None));
        let of_namespace = releases(&["--releases", "--watch-namespace=sea"]).unwrap();
        assert_eq!(of_namespace, Some(Some("sea".to_owned())));
        for refused in [
            &["--releases", "--manifests=."][..],
            &["--releases", "--controllers=application"],
        ] {
            assert!(matches!(releases(refused), Err(Error::Usage(_))), "{refused:?}");
        }
    }

    #[test]
    fn the_watched_namespace_limits_the_catalog() {
        let namespace = |flags: &[&str]| {
            catalog(&[&["--serve=:8090"], flags].concat())
                .unwrap()
                .unwrap()
                .namespace
        };
        assert_eq!(namespace(&[]), None);
        assert_eq!(namespace(&["--watch-namespace=sea"]).as_deref(), Some("sea"));
    }
}
