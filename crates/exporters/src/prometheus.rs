//! The metrics as text for Prometheus, in its own format and in OpenMetrics.

use super::{
    RuntimeMetrics,
    families::{FAMILIES, Value},
    text::{Float, Format, Text},
};

impl RuntimeMetrics {
    /// Returns all metrics as text in version 0.0.4 of Prometheus' format. Its content type is
    /// `text/plain; version=0.0.4`.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let text = runtime.metrics().prometheus();
    /// assert!(text.contains("# TYPE tourbillon_timers_armed_total counter\n"));
    /// assert!(text.contains("\ntourbillon_timers_armed_total{worker=\"0\",from=\"local\"} 0\n"));
    /// ```
    pub fn prometheus(&self) -> String {
        self.render(Format::Prometheus)
    }

    /// Returns all metrics as text in OpenMetrics 1.0.0. Its content type is
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let text = runtime.metrics().openmetrics();
    /// assert!(text.contains("# TYPE tourbillon_timers_armed counter\n"));
    /// assert!(text.ends_with("# EOF\n"));
    /// ```
    pub fn openmetrics(&self) -> String {
        self.render(Format::OpenMetrics)
    }

    fn render(&self, format: Format) -> String {
        let mut text = Text::new(format);
        for family in FAMILIES {
            text.family(family.name, family.kind, family.help);
            (family.samples)(self, &mut |labels, value| match value {
                Value::Number(number) => text.sample("", labels, number),
                Value::Seconds(seconds) => text.sample("", labels, Float(seconds)),
                Value::Lateness(late) => text.buckets(labels, late),
            });
        }
        text.end()
    }
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
