-- SVG icons of charts. Kubeapps would serve the ones in its own table as they are, so they stand here. A row counts while the chart
-- has this URL.
CREATE TABLE portolan_svg_icons (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    chart_id  TEXT NOT NULL,
    url       TEXT NOT NULL,
    -- the bytes as they came, in base64
    svg       TEXT NOT NULL,
    PRIMARY KEY (namespace, name, chart_id)
);

-- Earlier releases recorded SVG icons as failures of the next day. They are due now.
DELETE FROM portolan_icons WHERE message = 'SVG icons are not stored, the chart keeps the URL';
