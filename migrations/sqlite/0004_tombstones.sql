-- UIDs of repositories that were deleted within the last day. A sync of such a repository must not commit.
CREATE TABLE portolan_tombstones (
    uid TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Seconds since 1970.
    deleted_at BIGINT NOT NULL
);
