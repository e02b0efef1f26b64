-- Kubeapps' own statements, unchanged since its release 1.9, so that it does not matter which program runs first.
CREATE TABLE IF NOT EXISTS repos (
    ID serial NOT NULL PRIMARY KEY,
    namespace varchar NOT NULL,
    name varchar NOT NULL,
    checksum varchar,
    last_update varchar,
    UNIQUE(namespace, name)
);
CREATE TABLE IF NOT EXISTS charts (
    ID serial NOT NULL PRIMARY KEY,
    repo_name varchar NOT NULL,
    repo_namespace varchar NOT NULL,
    chart_id varchar,
    info jsonb NOT NULL,
    UNIQUE(repo_name, repo_namespace, chart_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS files (
    ID serial NOT NULL PRIMARY KEY,
    chart_id varchar NOT NULL,
    repo_name varchar NOT NULL,
    repo_namespace varchar NOT NULL,
    chart_files_ID varchar NOT NULL,
    info jsonb NOT NULL,
    UNIQUE(repo_namespace, chart_files_ID),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE,
    FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts (repo_name, repo_namespace, chart_id) ON DELETE CASCADE
);
