//! Plots of the results in SVG. Each figure has a panel, and each system has a line in the panel.
//!
//! A plot has a background of its own, so that it is legible on light pages and on dark ones.

use std::error::Error;

use plotters::{
    coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    prelude::*,
    style::{
        FontTransform,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    results::{Results, Spread},
    table::{number, of_system},
    targets::ROWS,
};
use crate::system::System;

/// Width of a plot, in pixels.
const WIDTH: u32 = 860;
/// Height of a system's line, in pixels.
const LINE: u32 = 24;
/// Height of a panel's title, axis and margin together, in pixels.
const AROUND: u32 = 74;
/// Height of the title of a plot, in pixels.
const TITLE: u32 = 36;
/// Color of the background.
const GROUND: RGBColor = RGBColor(250, 250, 247);
/// Color of titles and numbers.
const INK: RGBColor = RGBColor(34, 34, 34);
/// Color of axes and grid lines.
const FAINT: RGBColor = RGBColor(205, 205, 200);
/// Color of Tourbillon's names and lines.
const OURS: RGBColor = RGBColor(192, 57, 43);
/// Color of the peers' names and lines.
const PEERS: RGBColor = RGBColor(44, 92, 140);
const FONT: &str = "sans-serif";

/// One figure, with its value on each system.
struct Panel {
    /// Name of the figure.
    title: &'static str,
    /// Systems that have the figure, in the order of [`System::ALL`].
    lines: Vec<(System, Spread)>,
}

/// Returns a panel for each row of [`ROWS`] that at least two systems have a figure for.
fn panels(results: &Results, workload: &str) -> Vec<Panel> {
    ROWS.iter()
        .filter(|row| row.workload == workload && row.ours == System::Tourbillon)
        .filter_map(|row| {
            let systems = System::ALL.into_iter();
            let lines =
                systems.filter_map(|system| Some((system, of_system(results, row, system)?)));
            let lines: Vec<_> = lines.collect();
            (lines.len() > 1).then_some(Panel {
                title: row.figure,
                lines,
            })
        })
        .collect()
}

/// Draws the plot of a workload, and returns it as SVG.
///
/// Returns `None` if no figure has values of at least two systems.
///
/// # Errors
///
/// Returns the reason as text if drawing fails.
pub fn svg(results: &Results, workload: &str) -> Option<Result<String, String>> {
    let panels = panels(results, workload);
    if panels.is_empty() {
        return None;
    }
    Some(draw(results, workload, &panels).map_err(|error| error.to_string()))
}

/// Returns the height of a panel, in pixels.
fn height(panel: &Panel) -> u32 {
    AROUND + LINE * u32::try_from(panel.lines.len()).expect("systems are few")
}

/// Draws the title and all panels from top to bottom, and returns them as SVG.
fn draw(results: &Results, workload: &str, panels: &[Panel]) -> Result<String, Box<dyn Error>> {
    let total = TITLE + panels.iter().map(height).sum::<u32>();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, total)).into_drawing_area();
        area.fill(&GROUND)?;
        let machine = &results.machine;
        let title = format!(
            "{}: median and min–max of {} rounds, {}, {}",
            workload.to_uppercase(),
            results.rounds,
            machine.processor,
            machine.date,
        );
        area.draw(&Text::new(
            title,
            (16, 12),
            (FONT, 16).into_font().color(&INK),
        ))?;
        let mut top = TITLE;
        for panel in panels {
            let bottom = top + height(panel);
            let (from, to) = (i32::try_from(top)?, i32::try_from(bottom)?);
            let whole = area.clone();
            let (_, below) = whole.split_vertically(from);
            let (this, _) = below.split_vertically(to - from);
            draw_panel(&this, panel)?;
            top = bottom;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Drawing area with coordinates in pixels.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws a panel with a linear or a logarithmic axis.
fn draw_panel(area: &Area<'_>, panel: &Panel) -> Result<(), Box<dyn Error>> {
    let values = || panel.lines.iter().map(|(_, spread)| spread);
    let least = values().map(|s| s.min).fold(f64::INFINITY, f64::min);
    let most = values().map(|s| s.max).fold(0.0, f64::max);
    // If the largest value is over 20 times the smallest, a linear axis would hide the smallest.
    // Zero has no logarithm.
    if least > 0.0 && most / least > 20.0 {
        draw_lines(
            area,
            panel,
            (least / 1.6..most * 2.5).log_scale(),
            "log scale",
        )
    } else {
        draw_lines(area, panel, 0.0..(most * 1.18).max(f64::MIN_POSITIVE), "")
    }
}

/// Draws a panel with the axis `x`. The panel's title mentions `scale` if it is not empty.
fn draw_lines<X>(area: &Area<'_>, panel: &Panel, x: X, scale: &str) -> Result<(), Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let count = i32::try_from(panel.lines.len())?;
    let title = match scale {
        "" => panel.title.to_owned(),
        scale => format!("{}  ({scale})", panel.title),
    };
    let mut chart = ChartBuilder::on(area)
        .margin_left(12)
        .margin_right(16)
        .margin_top(6)
        .caption(title, (FONT, 15).into_font().color(&INK))
        .x_label_area_size(26)
        .y_label_area_size(96)
        // Each system's line has a height of 1 on this axis. Zero is at the top.
        .build_cartesian_2d(x, f64::from(count)..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .x_labels(6)
        .y_labels(0)
        .label_style((FONT, 12).into_font().color(&INK))
        .x_label_formatter(&|value| number(*value))
        .draw()?;
    let right = Pos::new(HPos::Right, VPos::Center);
    let (plot_left, _) = chart.plotting_area().get_pixel_range();
    for (at, (system, spread)) in panel.lines.iter().enumerate() {
        let y = f64::from(u32::try_from(at)?) + 0.5;
        let color = if system.is_ours() { OURS } else { PEERS };
        let line = [(spread.min, y), (spread.max, y)];
        chart.draw_series([PathElement::new(line, color.stroke_width(3))])?;
        let median = (spread.median, y);
        chart.draw_series([Circle::new(median, 5, color.filled())])?;
        let value = (FONT, 12).into_font().color(&INK);
        let value = value.pos(Pos::new(HPos::Left, VPos::Center));
        let beside =
            EmptyElement::at((spread.max, y)) + Text::new(number(spread.median), (9, 0), value);
        chart.draw_series([beside])?;
        // Write the name in the place of the disabled axis labels. `map_coordinate` returns pixels
        // of the whole plot, but `area` draws relative to its own corner.
        let (_, row) = chart.plotting_area().map_coordinate(&(spread.median, y));
        let name = (FONT, 13).into_font().transform(FontTransform::None);
        let name = name.color(&color).pos(right);
        let base = area.get_base_pixel();
        area.draw(&Text::new(
            system.name(),
            (plot_left.start - base.0 - 8, row - base.1),
            name,
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::results::tests::{results, run};

    #[test]
    fn a_plot_names_its_figure_and_its_systems() {
        let figure = "callback: ns per pair";
        let results = results(vec![
            run(0, System::Tourbillon, figure, Some(50.0)),
            run(0, System::DelayQueue, figure, Some(50_000.0)),
            run(0, System::Smol, figure, None),
        ]);
        let svg = svg(&results, "w1").unwrap().unwrap();
        for has in ["tourbillon", "delay-queue", figure, "50,000", "log scale"] {
            assert!(svg.contains(has), "{has}: {svg}");
        }
        assert!(!svg.contains("smol"), "{svg}");
    }

    #[test]
    fn a_single_system_has_no_plot() {
        let figure = "callback: ns per pair";
        let results = results(vec![run(0, System::Tourbillon, figure, Some(50.0))]);
        assert!(svg(&results, "w1").is_none());
    }
}
