-- The newest generation of each Lease that a leader wrote with: an older leader may no longer write.
CREATE TABLE portolan_fences (
    -- UID of the namespace kube-system with the --cluster-id, as in portolan_repositories
    origin      TEXT NOT NULL,
    -- namespace/name
    lease       TEXT NOT NULL,
    -- The generation: creation time of the Lease in seconds since 1970, and its number of transitions
    created     BIGINT NOT NULL,
    transitions BIGINT NOT NULL,
    holder      TEXT NOT NULL,
    PRIMARY KEY (origin, lease)
);
