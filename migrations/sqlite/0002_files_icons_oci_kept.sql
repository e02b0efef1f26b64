-- Work on charts that comes after their index: files, icons, registries, and versions that are kept although they left the index.
-- Nothing refers to Kubeapps' tables by a foreign key. Times that are compared here are milliseconds since 1970, the others RFC 3339.

-- Versions whose row in Kubeapps' table of files is missing, empty, or of an earlier archive: those that failed, and, with no
-- tries, those that were left out.
CREATE TABLE portolan_files (
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    chart_id       TEXT NOT NULL,
    chart_files_id TEXT NOT NULL,
    -- of the archive that failed: the failures of another one don't count
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

-- What is known of a registry's repositories, so that what has not changed is not asked for again.
CREATE TABLE portolan_oci_repositories (
    namespace       TEXT NOT NULL,
    name            TEXT NOT NULL,
    repository      TEXT NOT NULL,
    -- a digest of what the repositories were found by: what another source has told is not believed
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
    -- of Chart.yaml what a catalogue needs, as JSON; nothing where the tag is no chart
    metadata   TEXT,
    problem    TEXT,
    tries      BIGINT NOT NULL,
    next_try   TEXT,
    PRIMARY KEY (namespace, name, repository, tag)
);

-- Versions that left the index and stay for a while.
CREATE TABLE portolan_kept_versions (
    namespace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    chart_id      TEXT NOT NULL,
    version       TEXT NOT NULL,
    missing_since BIGINT NOT NULL,
    expires       BIGINT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id, version)
);

-- The names and versions of the Secrets by which the last index came, and nothing of what is in them.
ALTER TABLE portolan_repositories ADD COLUMN credentials TEXT NOT NULL DEFAULT '';
