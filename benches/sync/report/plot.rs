//! The plot: CPU by the size of the index, both axes logarithmic.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// A line of the plot: sizes in MB and CPU in seconds.
pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Draws the lines as SVG.
pub fn draw(lines: &[Line], path: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("CPU of a sync by the size of the index (SQLite)", ("sans-serif", 26))
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(76)
        .build_cartesian_2d((0.9..40.0).log_scale().base(2.0), (1.0..1000.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 20))
        .x_desc("index, MB")
        .y_desc("CPU, ms")
        .x_label_formatter(&f64::to_string)
        .y_label_formatter(&f64::to_string)
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let style = Palette99::pick(index).filled().stroke_width(2);
        let points = line.points.iter().map(|(megabytes, cpu)| (*megabytes, cpu * 1e3));
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 20))
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
