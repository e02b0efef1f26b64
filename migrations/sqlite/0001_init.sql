-- Portolan's own tables. None has a foreign key to a table of Kubeapps, which drops and recreates those.
-- Times are RFC 3339 in UTC as TEXT, and milliseconds since 1970 as BIGINT where statements compare them.

CREATE TABLE portolan_repositories (
    namespace         TEXT NOT NULL,
    name              TEXT NOT NULL,
    -- UID of the object, and its source: UID of the namespace kube-system, id of a directory of manifests, or one-shot
    uid               TEXT NOT NULL,
    origin            TEXT NOT NULL,
    url               TEXT NOT NULL,
    kind              TEXT NOT NULL,
    -- everything that the charts depend on besides the index
    change_key        TEXT NOT NULL,
    etag              TEXT,
    last_modified     TEXT,
    -- names and versions of the Secrets that the last index was fetched with; never their content
    credentials       TEXT NOT NULL,
    -- SHA-256 of the body of the last index
    index_digest      TEXT NOT NULL,
    -- the condition Ready; NULL where it is unknown
    ready             BOOLEAN,
    last_attempt      TEXT,
    last_success      TEXT,
    -- directories of manifests only: the generation rises when the hash changes
    spec_hash         TEXT,
    generation        BIGINT NOT NULL,
    -- JSON: the fields that no statement filters by
    details           TEXT NOT NULL,
    -- Kubeapps' row of the repository as Portolan wrote it: other values mean that another process wrote the charts
    repos_id          BIGINT,
    repos_checksum    TEXT,
    repos_last_update TEXT,
    -- number of writes: a writer that read an older row must not overwrite a newer one
    revision          BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- The syncs that changed something, failed, or recovered.
CREATE TABLE portolan_syncs (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    started_at  TEXT NOT NULL,
    duration_ms BIGINT NOT NULL,
    result      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    message     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    charts      BIGINT NOT NULL,
    versions    BIGINT NOT NULL,
    added       BIGINT NOT NULL,
    changed     BIGINT NOT NULL,
    removed     BIGINT NOT NULL,
    skipped     BIGINT NOT NULL,
    FOREIGN KEY (namespace, name) REFERENCES portolan_repositories (namespace, name) ON DELETE CASCADE
);

CREATE INDEX portolan_syncs_repository ON portolan_syncs (namespace, name, id);

-- Versions whose row in Kubeapps' table files is missing, empty, or of an earlier archive: failed ones, and skipped ones with 0 tries.
CREATE TABLE portolan_files (
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    chart_id       TEXT NOT NULL,
    chart_files_id TEXT NOT NULL,
    -- of the archive that failed: failures of another archive don't count
    digest         TEXT NOT NULL,
    tries          BIGINT NOT NULL,
    next_try       BIGINT NOT NULL,
    message        TEXT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id, chart_files_id)
);

-- Icons that failed.
CREATE TABLE portolan_icons (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    chart_id  TEXT NOT NULL,
    url       TEXT NOT NULL,
    tries     BIGINT NOT NULL,
    next_try  BIGINT NOT NULL,
    message   TEXT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id)
);

-- Versions that left the index and are kept for a while.
CREATE TABLE portolan_kept_versions (
    namespace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    chart_id      TEXT NOT NULL,
    version       TEXT NOT NULL,
    missing_since BIGINT NOT NULL,
    expires       BIGINT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id, version)
);

-- The indexes whose charts have digests in portolan_chart_digests.
CREATE TABLE portolan_index_cache (
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- everything that a row depends on besides the text of its chart: digests of another cache key don't count
    cache_key  TEXT NOT NULL,
    -- the key of the hash function; never shown
    digest_key TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- The charts of an index, so that only those of the next index are decoded whose text has another digest.
CREATE TABLE portolan_chart_digests (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    -- the key of the chart in the index
    key       TEXT NOT NULL,
    digest    TEXT NOT NULL,
    -- JSON: the counts of the chart
    stats     TEXT NOT NULL,
    -- the row in Kubeapps' table charts that the text led to; NULL where it led to none
    chart_id  TEXT,
    row_id    BIGINT,
    PRIMARY KEY (namespace, name, key)
);

-- The repositories of a registry, so that an unchanged one is not listed again.
CREATE TABLE portolan_oci_repositories (
    namespace       TEXT NOT NULL,
    name            TEXT NOT NULL,
    repository      TEXT NOT NULL,
    -- digest of what the repositories were found by: rows of another source don't count
    source          TEXT NOT NULL,
    etag            TEXT,
    last_modified   TEXT,
    digests_checked TEXT,
    PRIMARY KEY (namespace, name, repository)
);

CREATE TABLE portolan_oci_tags (
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    repository TEXT NOT NULL,
    tag        TEXT NOT NULL,
    -- of the manifest
    digest     TEXT NOT NULL,
    -- JSON: the fields of Chart.yaml that the catalog needs; NULL where the tag is not a chart
    metadata   TEXT,
    problem    TEXT,
    tries      BIGINT NOT NULL,
    next_try   TEXT,
    PRIMARY KEY (namespace, name, repository, tag)
);

-- The bytes of the rows in Kubeapps' tables charts and files, counted as they are written.
CREATE TABLE portolan_stored_bytes (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    charts    BIGINT NOT NULL,
    files     BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- The clusters that use this database, one for each --cluster-id.
CREATE TABLE portolan_clusters (
    cluster_id TEXT NOT NULL PRIMARY KEY,
    origin     TEXT NOT NULL,
    renewed    BIGINT NOT NULL
);
