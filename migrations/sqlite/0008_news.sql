-- News that is not delivered yet: a row for each sink, inserted by the transaction that changed the charts or the record.
CREATE TABLE portolan_news (
    -- hash of the origin, the repository and the event: a repeated commit leads to the same row
    id        TEXT NOT NULL,
    -- as in portolan_repositories: the processes of this cluster deliver the row
    origin    TEXT NOT NULL,
    -- the repository
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    -- namespace/name of the Secret that holds the address; read at delivery
    sink      TEXT NOT NULL,
    -- JSON
    event     TEXT NOT NULL,
    created   BIGINT NOT NULL,
    tries     BIGINT NOT NULL,
    next_try  BIGINT NOT NULL,
    PRIMARY KEY (sink, id)
);

-- The first row of each sink is the one to deliver.
CREATE INDEX portolan_news_queue ON portolan_news (origin, sink, created, id);
