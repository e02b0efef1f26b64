-- Writes the digests of charts that differ from the stored ones.
-- $1 namespace, $2 name, $3 digests as JSON
INSERT INTO portolan_chart_digests (namespace, name, key, digest, stats, chart_id, row_id)
SELECT $1, $2, new.key, new.digest, new.stats, new.chart_id, c.id
FROM jsonb_to_recordset($3) AS new (key text, digest text, stats text, chart_id text)
    LEFT JOIN charts c ON c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = new.chart_id
WHERE NOT EXISTS (SELECT 1 FROM portolan_chart_digests k WHERE k.namespace = $1 AND k.name = $2 AND k.key = new.key
    AND k.digest = new.digest AND k.stats = new.stats
    AND k.chart_id IS NOT DISTINCT FROM new.chart_id AND k.row_id IS NOT DISTINCT FROM c.id)
ON CONFLICT (namespace, name, key) DO UPDATE SET digest = excluded.digest, stats = excluded.stats,
    chart_id = excluded.chart_id, row_id = excluded.row_id
