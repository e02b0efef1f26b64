//! Runs all queries of Kubeapps' API server over rows of valid and hostile charts.
//!
//! Also checks what the server requires of each row: one invalid row breaks the complete list.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::{Executor, PgPool};

use super::{World, execute};
use crate::support::portolan::command;
use crate::support::postgres;

/// Names in an index, and as they are stored.
const HOSTILE: [(&str, &str); 9] = [
    (
        "x') OR true OR (info->>'name' = 'y",
        "x') OR true OR (info->>'name' = 'y",
    ),
    ("o'neill", "o'neill"),
    ("a\"b\\c", "a\"b\\c"),
    ("{\"a\": [1]}", "{\"a\": [1]}"),
    ("100%_\\", "100%_\\"),
    ("$1 ? :a @b", "$1 ? :a @b"),
    ("名前/é\u{202e}", "名前%2Fé\u{202e}"),
    ("'; DROP TABLE charts; --", "'; DROP TABLE charts; --"),
    ("null", "null"),
];

/// Builds an index of hostile and valid charts.
fn hostile_index() -> String {
    let text = |text: &str| serde_json::to_string(text).unwrap();
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for (name, _) in HOSTILE {
        let name = text(name);
        // Kubeapps' reader or syncer fails on most of these values.
        index.push_str(&format!(
            "  {name}:\n  - name: {name}\n    version: 1.10\n    appVersion: 3\n    description: null\n    urls: []\n    \
             maintainers: [{{email: user@example.com}}, {{name: {name}}}]\n    keywords: [{name}]\n    created: yesterday\n    \
             annotations: {{category: null}}\n  - null\n  - {{name: {name}, version: \"\"}}\n"
        ));
    }
    index
        + "  wordpress:
  - name: wordpress
    version: 2.0.0+b1
    appVersion: 6.5
    description: A blog, with NUL \"\\0\" in it
    annotations: {category: CMS}
    sources: [https://git.example.com/wp]
    maintainers: [{name: Bitnami}]
    urls: [https://example.com/wordpress-2.0.0.tgz]
    created: 2026-01-02T03:04:05Z
  - {name: wordpress, version: 1.0.0, appVersion: \"5.0\", urls: [wordpress-1.0.0.tgz]}
  team/nginx:
  - {name: team/nginx, version: v1.0.0, keywords: [web], urls: [nginx-1.0.0.tgz]}
"
}

/// Kubeapps' API server, reduced to its queries.
struct Reader(PgPool);

impl Reader {
    /// Returns the first column.
    async fn query_infos(&self, statement: &'static str, values: &[&str]) -> Vec<Value> {
        let mut query = sqlx::query_scalar::<_, Json<Value>>(statement);
        for value in values {
            query = query.bind(*value);
        }
        query
            .fetch_all(&self.0)
            .await
            .unwrap()
            .into_iter()
            .map(|info| info.0)
            .collect()
    }

    async fn query_names(&self, statement: &'static str, values: &[&str]) -> Vec<String> {
        let infos = self.query_infos(statement, values).await;
        infos
            .iter()
            .map(|info| info["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns names and counts. The server requires names to be text, not null.
    async fn query_categories(&self, statement: &'static str, values: &[&str]) -> Vec<(String, i64)> {
        let mut query = sqlx::query_as(statement);
        for value in values {
            query = query.bind(*value);
        }
        query.fetch_all(&self.0).await.unwrap()
    }
}

/// Asserts what the server requires of each listed chart.
fn assert_valid(info: &Value) {
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    assert!(
        text(&info["ID"]) && text(&info["name"]) && text(&info["repo"]["name"]),
        "{info}"
    );
    assert!(info["category"].is_string() && info["raw_icon"].is_null(), "{info}");
    for list in ["keywords", "sources"] {
        assert!(info[list].is_null() || info[list].is_array(), "{info}");
    }
    assert!(
        info["maintainers"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| text(&one["name"])),
        "{info}"
    );
    let versions = info["chartVersions"].as_array().unwrap();
    assert!(!versions.is_empty(), "{info}");
    for version in versions {
        assert!(text(&version["version"]), "{info}");
        assert!(
            version["app_version"].is_string() && version["digest"].is_string(),
            "{info}"
        );
        version["created"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let urls = &version["urls"];
        assert!(
            urls.is_null() || urls.as_array().is_some_and(|urls| !urls.is_empty()),
            "{info}"
        );
    }
}

async fn sync_repositories() -> (Reader, postgres::TestDatabase) {
    let world = World::new().await;
    let database = postgres::database().await;
    for (name, namespace) in [
        ("stable", "kubeapps"),
        ("stable", "team"),
        ("x') OR true --", "kubeapps"),
    ] {
        let index = match namespace {
            "team" => crate::cluster::index(&[("only-team", &["1.0.0"])]),
            _ => hostile_index(),
        };
        let url = world.serve("one", index);
        let mut command = command(["sync", name, &url, "helm", "--namespace", namespace]);
        command.args(["--database-url", &database.url]);
        execute(command).await.ok();
    }
    (Reader(PgPool::connect(&database.url).await.unwrap()), database)
}

#[tokio::test]
async fn lists_and_categories_are_valid_for_kubeapps() {
    let (reader, _database) = sync_repositories().await;
    let in_namespace = "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2)
        ORDER BY (info->>'name') ASC LIMIT 100 OFFSET 0";
    let mut expected: Vec<&str> = HOSTILE
        .iter()
        .map(|(_, stored)| *stored)
        .chain(["wordpress", "team%2Fnginx"])
        .collect();
    expected = expected.iter().flat_map(|name| [*name, *name]).collect(); // of two repositories
    let listed = reader.query_infos(in_namespace, &["kubeapps", "kubeapps"]).await;
    listed.iter().for_each(assert_valid);
    let mut names: Vec<&str> = listed.iter().map(|info| info["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(
        reader.query_infos(in_namespace, &["team", "kubeapps"]).await.len(),
        expected.len() + 1
    );
    let everywhere = "SELECT info FROM charts ORDER BY (info->>'name') ASC";
    assert_eq!(reader.query_infos(everywhere, &[]).await.len(), expected.len() + 1);
    let page = "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2)
        ORDER BY (info->>'name') ASC LIMIT 3 OFFSET 21";
    assert_eq!(reader.query_infos(page, &["kubeapps", "kubeapps"]).await.len(), 1);

    let categories = "SELECT (info ->> 'category') AS name, COUNT((info ->> 'category')) AS count FROM charts
        WHERE (repo_namespace = $1 OR repo_namespace = $2) AND (repo_name = $3)
        GROUP BY (info ->> 'category') ORDER BY (info ->> 'category') ASC";
    assert_eq!(
        reader
            .query_categories(categories, &["kubeapps", "kubeapps", "stable"])
            .await,
        [(String::new(), HOSTILE.len() as i64 + 1), ("CMS".into(), 1)]
    );
    let everywhere = "SELECT (info ->> 'category') AS name, COUNT((info ->> 'category')) AS count FROM charts
        GROUP BY (info ->> 'category') ORDER BY (info ->> 'category') ASC";
    assert_eq!(reader.query_categories(everywhere, &[]).await[1], ("CMS".into(), 2));
}

#[tokio::test]
async fn charts_are_found_by_repository_category_version_and_words() {
    let (reader, _database) = sync_repositories().await;
    let filtered = "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2) AND (repo_name = $3 OR repo_name = $4)
        AND (info->>'category' = $5 OR info->>'category' = $6) ORDER BY (info->>'name') ASC";
    let values = ["kubeapps", "kubeapps", "stable", "none", "CMS", "Database"];
    assert_eq!(reader.query_names(filtered, &values).await, ["wordpress"]);

    let by_version =
        "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2) AND (info->>'name' = $3)
        AND (info->'chartVersions' @> $4::jsonb) AND (repo_name = $5) ORDER BY (info->>'name') ASC";
    for (name, version, app_version, found) in [
        ("wordpress", "2.0.0+b1", "6.5", 1),
        ("wordpress", "1.0.0", "5.0", 1),
        ("wordpress", "1.0.0", "6.5", 0), // of two different versions
        ("o'neill", "1.10", "3", 1),
        ("x') OR true OR (info->>'name' = 'y", "1.10", "3", 1),
    ] {
        let pair = serde_json::json!([{ "version": version, "app_version": app_version }]).to_string();
        let charts = reader
            .query_names(by_version, &["team", "kubeapps", name, &pair, "stable"])
            .await;
        assert_eq!(charts, vec![name; found], "{version} {app_version}");
    }

    let search = "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $1) AND (repo_name = $2)
        AND ((info ->> 'name' ILIKE $3) OR (info ->> 'description' ILIKE $3) OR (info -> 'repo' ->> 'name' ILIKE $3)
            OR (info ->> 'keywords' ILIKE $3) OR (info ->> 'sources' ILIKE $3) OR (info -> 'maintainers' ->> 'name' ILIKE $3))
        ORDER BY (info->>'name') ASC";
    for (words, found) in [
        ("%WordPress%", &["wordpress"][..]),
        ("%with nul%", &["wordpress"]),
        ("%git.example.com%", &["wordpress"]),
        ("%web%", &["team%2Fnginx"]),
        ("%o'neill%", &["o'neill"]),
        ("%bitnami%", &[]), // the server looks up a name in an array and finds nothing
    ] {
        assert_eq!(
            reader.query_names(search, &["kubeapps", "stable", words]).await,
            found,
            "{words}"
        );
    }
    let of_the_repository = reader.query_names(search, &["kubeapps", "stable", "%stable%"]).await;
    assert_eq!(of_the_repository.len(), HOSTILE.len() + 2);
}

#[tokio::test]
async fn charts_versions_and_files_are_found_by_their_ids() {
    let (reader, _database) = sync_repositories().await;
    let one = "SELECT info FROM charts WHERE repo_namespace = $1 AND chart_id = $2";
    let or_like = "SELECT info FROM charts WHERE repo_namespace = $1 AND chart_id ILIKE $2";
    for (_, name) in HOSTILE {
        let id = format!("stable/{name}");
        let found = reader.query_infos(one, &["kubeapps", &id]).await;
        assert_eq!((found.len(), &found[0]["ID"]), (1, &id.as_str().into()));
        // The server searches the versions of the list.
        assert_eq!(found[0]["chartVersions"][0]["version"], "1.10");
    }
    assert_eq!(
        reader.query_names(or_like, &["kubeapps", "stable%nginx"]).await,
        ["team%2Fnginx"]
    );
    assert_eq!(
        reader.query_names(or_like, &["kubeapps", "stable%WordPress"]).await,
        ["wordpress"]
    );

    // Files that Kubeapps imported are found, and deleted with their chart.
    let info = r#"{"ID": "stable/wordpress-1.0.0", "Readme": "Read me", "DefaultValues": "", "Schema": "", "Digest": "d",
        "Repo": {"namespace": "kubeapps", "name": "stable", "url": "", "type": ""}, "AdditionalDefaultValues": {}}"#;
    sqlx::query(
        "INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_ID, info) VALUES ($1, $2, $3, $4, $5::jsonb)
         ON CONFLICT (repo_namespace, chart_files_ID) DO UPDATE SET info = $5::jsonb",
    )
    .bind("stable/wordpress")
    .bind("stable")
    .bind("kubeapps")
    .bind("stable/wordpress-1.0.0")
    .bind(info)
    .execute(&reader.0)
    .await
    .unwrap();
    let files = "SELECT info FROM files WHERE repo_namespace = $1 AND chart_files_id = $2";
    let files_like = "SELECT info FROM files WHERE repo_namespace = $1 AND chart_files_id ILIKE $2";
    for (statement, id) in [
        (files, "stable/wordpress-1.0.0"),
        (files_like, "stable%wordpress-1.0.0"),
    ] {
        assert_eq!(
            reader.query_infos(statement, &["kubeapps", id]).await[0]["Readme"],
            "Read me"
        );
    }
    reader
        .0
        .execute("DELETE FROM charts WHERE chart_id = 'stable/wordpress'")
        .await
        .unwrap();
    assert!(
        reader
            .query_infos(files, &["kubeapps", "stable/wordpress-1.0.0"])
            .await
            .is_empty()
    );
}
