-- Charts whose newest version is deprecated. Kubeapps lists none of them, so they have no row in its table charts.
CREATE TABLE portolan_deprecated_charts (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    chart_id  TEXT NOT NULL,
    -- JSON: the fields of charts.info by which an installed chart is recognized
    info      TEXT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id)
);
