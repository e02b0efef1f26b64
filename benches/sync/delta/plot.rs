//! The plot: CPU by the size of the index and by the size of the change, both axes by tens.

use std::fmt::Write as _;

use super::figures::{Delta, Line};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 430.0;
/// Of each of the two panels: where its lines begin and end.
const TOP: f64 = 70.0;
const BOTTOM: f64 = 370.0;
const PANEL: f64 = 270.0;
/// Space for the names of lines, to the right of each panel.
const LEFT: [f64; 2] = [62.0, 566.0];
/// The least that two names are apart.
const APART: f64 = 17.0;

/// It brings its own background, so that it can be read wherever it is shown.
const STYLE: &str = "<style>
.back{fill:#ffffff;stroke:#d0d7de}
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}
.head{font-size:15px;font-weight:600}
.soft{fill:#59636e}
.grid{stroke:#d0d7de;stroke-width:1}
polyline{fill:none;stroke-width:2.2}
.name{font-weight:600}
.c0 polyline{stroke:#cf222e}.c0 circle,.c0 text{fill:#cf222e}
.c1 polyline{stroke:#0969da}.c1 circle,.c1 text{fill:#0969da}
.c2 polyline{stroke:#1a7f37}.c2 circle,.c2 text{fill:#1a7f37}
.c3 polyline{stroke:#6e7781}.c3 circle,.c3 text{fill:#6e7781}
@media(prefers-color-scheme:dark){
.back{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#2a313c}
.c0 polyline{stroke:#ff7b72}.c0 circle,.c0 text{fill:#ff7b72}
.c1 polyline{stroke:#58a6ff}.c1 circle,.c1 text{fill:#58a6ff}
.c2 polyline{stroke:#3fb950}.c2 circle,.c2 text{fill:#3fb950}
.c3 polyline{stroke:#9198a1}.c3 circle,.c3 text{fill:#9198a1}}
</style>";

/// One panel.
struct Panel<'a> {
    left: f64,
    title: &'a str,
    unit: &'a str,
    lines: &'a [Line],
    ticks: Vec<f64>,
}

/// The ends of both panels' vertical axis, in milliseconds.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

/// The picture. None if it was not measured.
pub fn draw(delta: &Delta) -> Option<String> {
    let all = delta.by_size.iter().chain(&delta.by_change);
    let values = || all.clone().flat_map(|line| &line.points).map(|point| point.cpu * 1e3);
    let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let range = Range {
        low: 10_f64.powf(least.max(0.01).log10().floor()),
        high: 10_f64.powf(most.log10().ceil()),
    };
    let panels = [
        Panel {
            left: LEFT[0],
            title: "By the size of the index",
            unit: "MB",
            lines: &delta.by_size,
            ticks: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        },
        Panel {
            left: LEFT[1],
            title: "By the size of the change (16 MB)",
            unit: "versions changed",
            lines: &delta.by_change,
            ticks: vec![1.0, 10.0, 100.0, 1000.0],
        },
    ];
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"CPU of a sync by the size of the index and by the size of the change\">\n{STYLE}\n\
         <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"soft\" x=\"{}\" y=\"28\">CPU of a sync, ms (SQLite; both axes by powers)</text>\n",
        WIDTH - 1.0,
        HEIGHT - 1.0,
        LEFT[0] - 42.0
    );
    for panel in panels {
        panel.draw(&mut svg, range);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

impl Panel<'_> {
    fn draw(&self, svg: &mut String, range: Range) {
        // Into a String nothing can fail.
        let _ = self.frame(svg, range);
        let _ = self.curves(svg, range);
    }

    fn x(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        self.left + (value / first).log10() / (last / first).log10() * PANEL
    }

    fn frame(&self, svg: &mut String, range: Range) -> std::fmt::Result {
        let (left, right) = (self.left, self.left + PANEL);
        writeln!(svg, "<text class=\"head\" x=\"{left}\" y=\"54\">{}</text>", self.title)?;
        let mut level = range.low;
        while level <= range.high * 1.001 {
            let y = range.y(level);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.5,
                grouped(level)
            )?;
            level *= 10.0;
        }
        for tick in &self.ticks {
            let x = self.x(*tick);
            writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>\
                 <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 19.0,
                grouped(*tick)
            )?;
        }
        writeln!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + PANEL / 2.0,
            BOTTOM + 41.0,
            self.unit
        )
    }

    fn curves(&self, svg: &mut String, range: Range) -> std::fmt::Result {
        let mut names = Vec::new();
        for line in self.lines {
            let places: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|point| (self.x(point.x), range.y(point.cpu * 1e3)))
                .collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            write!(
                svg,
                "<g class=\"{}\"><polyline points=\"{}\"/>",
                color(line.name),
                path.join(" ")
            )?;
            for (x, y) in &places {
                write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\"/>")?;
            }
            writeln!(svg, "</g>")?;
            if let Some((_, y)) = places.last() {
                names.push((*y, line.name));
            }
        }
        for (y, name) in spread(names) {
            writeln!(
                svg,
                "<g class=\"{}\"><text class=\"name\" x=\"{}\" y=\"{:.1}\">{name}</text></g>",
                color(name),
                self.left + PANEL + 12.0,
                y + 4.5
            )?;
        }
        Ok(())
    }
}

impl Range {
    fn y(self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).log10() / (self.high / self.low).log10();
        BOTTOM - share * (BOTTOM - TOP)
    }
}

/// Names at the ends of their lines, moved up where they would lie on one another.
fn spread(mut names: Vec<(f64, &'static str)>) -> Vec<(f64, &'static str)> {
    names.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut limit = f64::INFINITY;
    for (y, _) in &mut names {
        *y = y.min(limit);
        limit = *y - APART;
    }
    names
}

/// The same thing has the same color in both panels.
fn color(name: &str) -> &'static str {
    match name {
        "first sync" => "c0",
        "one new version" | "changed versions" => "c1",
        "unchanged, no ETag" => "c2",
        _ => "c3",
    }
}

fn grouped(value: f64) -> String {
    if value < 1.0 {
        value.to_string()
    } else {
        crate::numbers::thousands(value as usize)
    }
}
