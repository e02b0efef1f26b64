-- Writes a record if the stored one has this UID and this revision.
-- $1 namespace, $2 name, $3 uid, $4 origin, $5 url, $6 kind, $7 change_key, $8 etag, $9 last_modified, $10 credentials,
-- $11 index_digest, $12 ready, $13 last_attempt, $14 last_success, $15 spec_hash, $16 generation, $17 details,
-- $18 expected uid, $19 expected revision
UPDATE portolan_repositories SET
    (uid, origin, url, kind, change_key, etag, last_modified, credentials, index_digest,
        ready, last_attempt, last_success, spec_hash, generation, details)
    = ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17),
    revision = revision + 1
WHERE namespace = $1 AND name = $2 AND uid = $18 AND revision = $19
