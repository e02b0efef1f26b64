//! The steps of the Dockerfile, as far as they run without a container engine: what is copied exists, and Cargo accepts
//! each command in a folder that holds only that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::ScratchDir;
use crate::support::project;

/// One instruction with its arguments, without continuation lines.
struct Instruction {
    name: String,
    arguments: String,
}

/// Returns the stages of the Dockerfile, each with its FROM.
fn stages() -> Vec<Vec<Instruction>> {
    let text = fs::read_to_string(project("Dockerfile")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let mut stages: Vec<Vec<Instruction>> = Vec::new();
    for line in joined.lines().filter(|line| !line.trim().is_empty()) {
        let (name, arguments) = line.split_once(' ').unwrap();
        if name == "FROM" {
            stages.push(Vec::new());
        }
        stages.last_mut().expect("FROM comes first").push(Instruction {
            name: name.to_owned(),
            arguments: arguments.trim().to_owned(),
        });
    }
    stages
}

fn arguments<'a>(stage: &'a [Instruction], name: &str) -> Vec<&'a str> {
    let found = stage.iter().filter(|instruction| instruction.name == name);
    found.map(|instruction| instruction.arguments.as_str()).collect()
}

/// Sources that the build context must hold, with their destination.
fn copies(instruction: &Instruction) -> Option<(Vec<&str>, &str)> {
    let is_of_context = instruction.name == "COPY" && !instruction.arguments.contains("--from=");
    let mut words: Vec<&str> = instruction.arguments.split_whitespace().collect();
    let destination = words.pop()?;
    is_of_context.then_some((words, destination))
}

#[test]
fn base_images_have_versions_and_no_syntax_is_fetched() {
    let text = fs::read_to_string(project("Dockerfile")).unwrap();
    assert!(!text.contains("# syntax"), "a frontend from a registry is not pinned");
    let stages = stages();
    let images: Vec<&str> = stages
        .iter()
        .map(|stage| arguments(stage, "FROM")[0].split(' ').next().unwrap())
        .collect();
    for image in &images {
        let (_, tag) = image.split_once(':').expect("a tag");
        // Distroless images have no versions; only their digest pins them.
        let is_version = tag.split(['-', '@']).next().unwrap().split('.').count() == 3;
        assert!(is_version || image.starts_with("gcr.io/distroless/"), "{image}");
        assert_ne!(tag, "latest");
    }
    let rust_version = fs::read_to_string(project("Cargo.toml")).unwrap();
    let rust_version = rust_version
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    let is_supported = images
        .iter()
        .any(|image| image.starts_with(&format!("rust:{}.", rust_version.trim_matches('"'))));
    assert!(is_supported, "{images:?} has Rust {rust_version}");
}

#[test]
fn an_image_is_pushed_only_with_the_digests_of_its_base_images() {
    let text = fs::read_to_string(project("Dockerfile")).unwrap();
    let first = |line: &str| {
        let image = line.strip_prefix("FROM ")?.split(' ').next()?.to_owned();
        image.contains([':', '.']).then_some(image)
    };
    let images: Vec<String> = text.lines().filter_map(first).collect();
    let directory = ScratchDir::new("digests");
    fs::copy(project("Makefile"), directory.path().join("Makefile")).unwrap();
    directory.write("docker", "#!/bin/sh\necho \"$@\" > pushed\n");
    let docker = directory.path().join("docker");
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let push = |dockerfile: &str| {
        directory.write("Dockerfile", dockerfile);
        let mut make = Command::new("make");
        make.args(["image-push", "IMAGE=registry.example.com/portolan:1", "TMPDIR=/tmp"]);
        let output = make.current_dir(directory.path()).env("PATH", &path).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let digest = |image: &str| format!("{}@sha256:{}", image.split('@').next().unwrap(), "0".repeat(64));
    let pinned = images.iter().fold(text.clone(), |text, image| {
        text.replace(&format!("FROM {image}"), &format!("FROM {}", digest(image)))
    });
    let unpinned = pinned.replacen(&digest(&images[0]), images[0].split('@').next().unwrap(), 1);
    let (is_pushed, printed) = push(&unpinned);
    assert!(
        !is_pushed && printed.contains("run make image-digests first"),
        "{printed}"
    );
    assert!(!directory.path().join("pushed").exists());
    let (is_pushed, printed) = push(&pinned);
    assert!(is_pushed, "{printed}");
    assert!(directory.path().join("pushed").exists());
}

#[test]
fn the_image_runs_as_a_user_without_rights_and_has_no_shell() {
    let stages = stages();
    let last = stages.last().unwrap();
    assert!(arguments(last, "FROM")[0].starts_with("gcr.io/distroless/cc-"));
    let [user] = arguments(last, "USER")[..] else {
        panic!("one USER")
    };
    let ids: Vec<u32> = user.split(':').map(|id| id.parse().expect("a numeric ID")).collect();
    assert!(ids.len() == 2 && !ids.contains(&0), "{user}");
    assert!(arguments(last, "RUN").is_empty(), "distroless images have no shell");
    // The chart's defaults are the same.
    let values = fs::read_to_string(project("charts/portolan/values.yaml")).unwrap();
    assert!(values.contains(&format!("runAsUser: {}", ids[0])));
    let program: Vec<String> = serde_json::from_str(arguments(last, "ENTRYPOINT")[0]).unwrap();
    assert_eq!(program, ["/usr/local/bin/portolan"]);
}

/// Returns the files of `.dockerignore` that are not ignored.
fn context() -> BTreeSet<String> {
    let text = fs::read_to_string(project(".dockerignore")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[0], "*", "everything else is ignored");
    let included = lines[1..]
        .iter()
        .map(|line| line.strip_prefix('!').expect("an inclusion"));
    included.map(str::to_owned).collect()
}

fn copy_all(source: &Path, destination: &Path) {
    if source.is_dir() {
        fs::create_dir_all(destination).unwrap();
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            copy_all(&entry.path(), &destination.join(entry.file_name()));
        }
    } else {
        fs::copy(source, destination).unwrap();
    }
}

#[test]
fn each_stage_copies_files_of_the_build_context_that_exist() {
    let context = context();
    let stages = stages();
    let copied: Vec<&str> = stages
        .iter()
        .flatten()
        .filter_map(copies)
        .flat_map(|(sources, _)| sources)
        .collect();
    assert!(copied.contains(&"evaluator"), "{copied:?}");
    for source in copied {
        let directory = source.split('/').next().unwrap();
        assert!(context.contains(directory), "{source} is hidden by .dockerignore");
        assert!(project(source).exists(), "{source}");
    }
}

/// A program named `cargo` that records its arguments and creates the binaries of a successful build. The real Cargo
/// reads the manifest before, which fails if the source file of a target is missing, and resolves the features.
const CARGO: &str = r#"#!/bin/sh
set -eu
echo "$@" >> "$RECORD"
[ "$1" = build ]
"$REAL_CARGO" metadata --locked --offline --no-deps --format-version 1 > "$RECORD.metadata"
shift
features=
while [ $# -gt 0 ]; do
    case $1 in
    --release | --locked | --bins) ;;
    --features) features=$2; shift ;;
    *) echo "unexpected argument $1" >&2; exit 1 ;;
    esac
    shift
done
"$REAL_CARGO" tree --locked --offline --depth 0 --features "$features" > /dev/null
"#;

#[test]
fn the_build_runs_in_a_folder_with_only_the_copied_files() {
    let directory = ScratchDir::new("image");
    let tools = directory.path().join("bin");
    let root = directory.path().join("root");
    fs::create_dir_all(&tools).unwrap();
    fs::create_dir_all(&root).unwrap();
    fs::write(tools.join("cargo"), CARGO).unwrap();
    fs::set_permissions(tools.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let record = directory.path().join("record");
    let path = std::env::var("PATH").unwrap();
    let context = context();

    let stages = stages();
    let build = stages
        .iter()
        .find(|stage| arguments(stage, "FROM")[0].ends_with(" AS build"))
        .unwrap();
    for instruction in build {
        if let Some((sources, destination)) = copies(instruction) {
            for source in sources {
                assert!(context.contains(source), "{source} is hidden by .dockerignore");
                let is_directory = destination.ends_with('/');
                let target = if is_directory {
                    root.join(source)
                } else {
                    root.join(destination)
                };
                copy_all(&project(source), &target);
            }
        }
        // The others install system packages.
        if instruction.name == "RUN" && instruction.arguments.contains("cargo ") {
            let output = Command::new("sh")
                .args(["-c", &instruction.arguments])
                .current_dir(&root)
                .env("PATH", format!("{}:{path}", tools.display()))
                .env("RECORD", &record)
                .env("REAL_CARGO", env!("CARGO"))
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", instruction.arguments);
        }
    }
    let features = features();
    let expected = format!("build --release --locked --features {features} --bins\n").repeat(2);
    assert_eq!(fs::read_to_string(&record).unwrap(), expected);
    assert_binaries(&record, &features);
    assert_included_files(&root);
}

/// Returns the features in the Makefile, which the SBOM lists.
fn features() -> String {
    let makefile = fs::read_to_string(project("Makefile")).unwrap();
    let line = makefile.lines().find_map(|line| line.strip_prefix("IMAGE_FEATURES = "));
    line.unwrap().to_owned()
}

/// Asserts that the last stage copies the binaries that Cargo builds with these features.
fn assert_binaries(record: &Path, features: &str) {
    let metadata = fs::read_to_string(record.with_extension("metadata")).unwrap();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let targets = metadata["packages"][0]["targets"].as_array().unwrap();
    let is_built = |target: &&serde_json::Value| {
        let required = target["required-features"].as_array().into_iter().flatten();
        let mut required = required.map(|feature| feature.as_str().unwrap());
        target["kind"][0] == "bin" && required.all(|feature| features.split(',').any(|one| one == feature))
    };
    let built = targets
        .iter()
        .filter(is_built)
        .map(|target| target["name"].as_str().unwrap());
    let built: BTreeSet<String> = built.map(|name| format!("/src/target/release/{name}")).collect();
    let stages = stages();
    let copied = arguments(stages.last().unwrap(), "COPY");
    let copied = copied.iter().flat_map(|arguments| arguments.split_whitespace());
    let copied: BTreeSet<String> = copied
        .filter(|word| word.contains("/release/"))
        .map(str::to_owned)
        .collect();
    assert_eq!(copied, built);
}

fn sources(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.insert(path.clone(), fs::read_to_string(&path).unwrap());
        }
    }
}

/// Asserts that the files which the code includes were copied.
fn assert_included_files(root: &Path) {
    let mut found = BTreeMap::new();
    sources(&root.join("src"), &mut found);
    let mut checked = 0;
    for (file, text) in &found {
        for included in text.split("include_str!(").skip(1) {
            let path = match included.strip_prefix("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/") {
                Some(path) => root.join(path.split('"').next().unwrap()),
                None if included.starts_with('"') => {
                    file.parent().unwrap().join(included[1..].split('"').next().unwrap())
                }
                None => panic!("{}: unknown form of include_str", file.display()),
            };
            assert!(path.exists(), "{} includes {}", file.display(), path.display());
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked} includes found");
}

#[test]
fn the_sbom_lists_the_crates_of_the_image_with_their_licenses_and_the_go_modules() {
    let tree = "portolan v0.1.0 (/src)|Apache-2.0\nserde v1.0.228|MIT OR Apache-2.0\ncuelang.org/go v0.15.3 golang|\n";
    let directory = ScratchDir::new("sbom");
    let input = directory.write("tree", tree);
    let script = project("tests/packaging/sbom.awk");
    let output = Command::new("awk").arg("-f").arg(script).arg(input).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["bomFormat"], "CycloneDX");
    let serde = serde_json::json!({
        "type": "library", "name": "serde", "version": "1.0.228", "purl": "pkg:cargo/serde@1.0.228",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    });
    assert_eq!(document["components"][1], serde);
    assert_eq!(document["components"][0]["version"], "0.1.0");
    assert_eq!(document["components"][2]["purl"], "pkg:golang/cuelang.org/go@v0.15.3");
}
