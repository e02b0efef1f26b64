-- The tables of Kubeapps for SQLite. As in Postgres, IDs are never reused: a recreated repository has a new one.
CREATE TABLE IF NOT EXISTS repos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    checksum TEXT,
    last_update TEXT,
    UNIQUE(namespace, name)
);
CREATE TABLE IF NOT EXISTS charts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_name TEXT NOT NULL,
    repo_namespace TEXT NOT NULL,
    chart_id TEXT,
    info TEXT NOT NULL,
    UNIQUE(repo_name, repo_namespace, chart_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chart_id TEXT NOT NULL,
    repo_name TEXT NOT NULL,
    repo_namespace TEXT NOT NULL,
    chart_files_id TEXT NOT NULL,
    info TEXT NOT NULL,
    UNIQUE(repo_namespace, chart_files_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE,
    FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts (repo_name, repo_namespace, chart_id) ON DELETE CASCADE
);
