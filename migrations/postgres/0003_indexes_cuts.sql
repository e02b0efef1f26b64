-- What is remembered of each chart of an index, so that the next index is decoded only where its text is another.
-- Nothing refers to Kubeapps' tables by a foreign key: a cut is tied to the row of its chart by value.
CREATE TABLE portolan_indexes (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    -- by what the charts were made of their texts: under another one nothing of it holds
    stamp     TEXT NOT NULL,
    -- the key of the digests
    secret    TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE portolan_cuts (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    -- what the chart stands under in the index
    key       TEXT NOT NULL,
    -- of the chart's text
    digest    TEXT NOT NULL,
    -- what else came of the text
    memo      TEXT NOT NULL,
    -- the row in Kubeapps' table of charts that came of the text; nothing where none did
    chart_id  TEXT,
    row_id    BIGINT,
    PRIMARY KEY (namespace, name, key)
);
