//! Negotiation of the metrics format by `Accept`.
//!
//! Hidden, because only the fuzz targets use it from outside.

use hyper::{HeaderMap, header::ACCEPT};

/// A text format for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus' own format, version 0.0.4. Every client reads it, so it is the default.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

/// Returns the format that a client asks for: OpenMetrics if the client names it, and does not
/// prefer the other format.
pub fn text_format(headers: &HeaderMap) -> TextFormat {
    let open = weight(headers, "application/openmetrics-text", "1.0.0");
    let plain = weight(headers, "text/plain", "0.0.4");
    // A client that likes both equally knows OpenMetrics, the newer format.
    if open > 0.0 && open >= plain {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Prometheus
    }
}

/// Returns the quality that a client gives to a type in this version or in any. Returns 0 if the
/// type is not acceptable or not named.
fn weight(headers: &HeaderMap, wanted: &str, version: &str) -> f32 {
    let values = headers.get_all(ACCEPT).iter();
    let ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    // A range without a version accepts any. A quality out of range counts as 0, not as acceptable.
    let weights = ranges.filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_type = parts.next()?.eq_ignore_ascii_case(wanted);
        let parameter = |wanted: &str| {
            parts.clone().find_map(|part| {
                let (name, value) = part.split_once('=')?;
                let is_wanted = name.trim_end().eq_ignore_ascii_case(wanted);
                is_wanted.then_some(value.trim().trim_matches('"'))
            })
        };
        let is_wanted = is_type && parameter("version").is_none_or(|said| said == version);
        is_wanted.then(|| {
            let q = parameter("q").map_or(Ok(1.0), str::parse);
            q.ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0)
        })
    });
    weights.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_for(accept: &[&'static str]) -> TextFormat {
        let mut headers = HeaderMap::new();
        for accept in accept {
            headers.append(ACCEPT, accept.parse().unwrap());
        }
        text_format(&headers)
    }

    #[test]
    fn openmetrics_needs_its_name_in_accept() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            prometheus,
            "application/openmetrics-text",
            "text/html, Application/OpenMetrics-Text; q=0.1",
            "text/plain, application/openmetrics-text",
            "application/openmetrics-text; Q = 0.2 ; version=\"1.0.0\"",
            "application/openmetrics-text;version=0.0.1,application/openmetrics-text;version=1.0.0;q=0.5",
            // It prefers a version that we do not have.
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;q=0.4",
        ] {
            assert_eq!(format_for(&[accept]), TextFormat::OpenMetrics, "{accept}");
        }
        let lines = ["text/plain;q=0.1", "application/openmetrics-text"];
        assert_eq!(format_for(&lines), TextFormat::OpenMetrics);
    }

    #[test]
    fn other_clients_get_the_default_format() {
        for accept in [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;Q=0",
            "application/openmetrics-text; q = 0",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=nan",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=much",
            "application/openmetrics-text;q=0.5,text/plain",
            "application/openmetrics-text-2",
        ] {
            assert_eq!(format_for(&[accept]), TextFormat::Prometheus, "{accept}");
        }
        assert_eq!(format_for(&[]), TextFormat::Prometheus);
    }
}
