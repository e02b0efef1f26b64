-- What Portolan itself remembers. Nothing here refers to Kubeapps' tables by a foreign key: Kubeapps drops and remakes them.
-- Times are RFC 3339 in UTC.
CREATE TABLE portolan_repositories (
    namespace                 TEXT NOT NULL,
    name                      TEXT NOT NULL,
    -- the UID of the object, and where it is from: the cluster, a folder of manifests, or a one-shot command
    uid                       TEXT NOT NULL,
    origin                    TEXT NOT NULL,
    url                       TEXT NOT NULL,
    kind                      TEXT NOT NULL,
    -- what the charts depend on beside the index
    change_key                TEXT NOT NULL,
    etag                      TEXT,
    last_modified             TEXT,
    -- SHA-256 of the index's body
    index_digest              TEXT NOT NULL,
    last_attempt              TEXT,
    last_success              TEXT,
    -- the condition Ready; NULL where it is unknown
    ready                     BOOLEAN,
    -- JSON: what no statement filters by
    details                   TEXT NOT NULL,
    -- folders only: the generation rises with the hash
    spec_hash                 TEXT,
    generation                BIGINT NOT NULL,
    -- Kubeapps' row of this repository as we wrote it: if it is another now, somebody else has been at the charts
    repos_id                  BIGINT,
    repos_checksum            TEXT,
    repos_last_update         TEXT,
    -- counts the writes: whoever has read an older row must not write over a newer one
    revision                  BIGINT NOT NULL,
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
