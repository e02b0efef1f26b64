//! The memory limit of the container.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the lowest memory limit of this process's cgroup and the groups above it (v2 or v1). `None` without a limit.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_below(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the memory that is left below these limits. `None` without a limit.
#[must_use]
pub fn memory_left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    left_below(Path::new("/sys/fs/cgroup"), &groups)
}

fn limit_below(root: &Path, groups: &str) -> Option<u64> {
    limits(root, groups).map(|(limit, _)| limit).min()
}

fn left_below(root: &Path, groups: &str) -> Option<u64> {
    let left = |(limit, group): (u64, PathBuf)| limit.saturating_sub(used_memory(&group));
    limits(root, groups).map(left).min()
}

/// Returns the memory that a group uses, without files that the kernel can drop.
fn used_memory(group: &Path) -> u64 {
    let number = |file| read_number(&group.join(file));
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = statistics.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(field, _)| *field == name)?.1.parse::<u64>().ok()
    };
    let files = field("total_inactive_file").or_else(|| field("inactive_file"));
    used.unwrap_or_default().saturating_sub(files.unwrap_or_default())
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the limits with their groups.
fn limits(root: &Path, groups: &str) -> impl Iterator<Item = (u64, PathBuf)> {
    let files = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // A container sees its own group as the root, but v1 names the group of the host.
        let directory = root.join(group.trim_start_matches('/'));
        let groups = directory.ancestors().take_while(|path| path.starts_with(&root));
        Some(
            groups
                .map(|path| (path.join(file), path.to_owned()))
                .collect::<Vec<_>>(),
        )
    });
    files.flatten().filter_map(|(file, group)| {
        let limit = read_number(&file)?;
        // Version 1 writes the largest number of pages for "no limit".
        (limit < 1 << 60).then_some((limit, group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn the_lowest_limit_of_the_groups_counts() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("pod/memory.max", "1000\n"),
            ("pod/own/memory.max", "2000\n"),
        ]);
        assert_eq!(limit_below(root.path(), "0::/pod/own\n"), Some(1000));
        assert_eq!(limit_below(root.path(), "0::/other\n"), None);
    }

    #[test]
    fn files_that_can_be_dropped_are_left() {
        let root = tree(&[
            ("pod/memory.max", "1000\n"),
            ("pod/memory.current", "700\n"),
            ("pod/memory.stat", "anon 500\ninactive_file 200\n"),
        ]);
        assert_eq!(left_below(root.path(), "0::/pod\n"), Some(500));
        assert_eq!(left_below(root.path(), "0::/other\n"), None);
        let root = tree(&[
            ("memory/memory.limit_in_bytes", "1000\n"),
            ("memory/memory.usage_in_bytes", "900\n"),
        ]);
        assert_eq!(left_below(root.path(), "3:memory:/docker/x\n"), Some(100));
    }

    #[test]
    fn version_1_names_the_controller_and_a_group_of_the_host() {
        let root = tree(&[("memory/memory.limit_in_bytes", "5000\n")]);
        let groups = "5:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n";
        assert_eq!(limit_below(root.path(), groups), Some(5000));
        let unlimited = tree(&[("memory/memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(limit_below(unlimited.path(), groups), None);
    }
}
