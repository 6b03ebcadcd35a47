//! The metrics as text for Prometheus, in its own format and in OpenMetrics.

use tourbillon::metrics::RuntimeMetrics;

use crate::{
    families::{FAMILIES, Value},
    text::{Float, Format, Text},
};

/// Returns all metrics as text in version 0.0.4 of Prometheus' format. Its content type is
/// `text/plain; version=0.0.4`.
///
/// ```
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let text = tourbillon_exporters::prometheus(&runtime.metrics());
/// assert!(text.contains("# TYPE tourbillon_timers_armed_total counter\n"));
/// assert!(text.contains("\ntourbillon_timers_armed_total{worker=\"0\",from=\"local\"} 0\n"));
/// ```
pub fn prometheus(metrics: &RuntimeMetrics) -> String {
    render(metrics, Format::Prometheus)
}

/// Returns all metrics as text in OpenMetrics 1.0.0. Its content type is
/// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
///
/// ```
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let text = tourbillon_exporters::openmetrics(&runtime.metrics());
/// assert!(text.contains("# TYPE tourbillon_timers_armed counter\n"));
/// assert!(text.ends_with("# EOF\n"));
/// ```
pub fn openmetrics(metrics: &RuntimeMetrics) -> String {
    render(metrics, Format::OpenMetrics)
}

fn render(metrics: &RuntimeMetrics, format: Format) -> String {
    let mut text = Text::new(format);
    for family in FAMILIES {
        text.family(family.name, family.kind, family.help);
        family.samples(metrics, &mut |labels, value| match value {
            Value::Number(number) => text.sample("", labels, number),
            Value::Seconds(seconds) => text.sample("", labels, Float(seconds)),
            Value::Lateness(late) => text.buckets(labels, late),
        });
    }
    text.end()
}
