-- Chart.yaml of the archives whose files are imported. A row counts while the row in Kubeapps' table files has its digest.
CREATE TABLE portolan_chart_metadata (
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    chart_id       TEXT NOT NULL,
    chart_files_id TEXT NOT NULL,
    -- of the archive in the index; empty if it has none
    digest         TEXT NOT NULL,
    -- JSON; NULL where the archive has no valid Chart.yaml, so that it is not fetched again
    metadata       TEXT,
    PRIMARY KEY (namespace, name, chart_id, chart_files_id)
);
