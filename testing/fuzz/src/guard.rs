//! Fuzzes which requests the live page answers, and in which format: its guard and its own module
//! against a second implementation of the rules.
//!
//! The input is the head of a request: a line with method and target, then headers.

use hyper::{
    HeaderMap, Method, Request, Uri,
    header::{HeaderName, HeaderValue},
};
use tourbillon_axum::guard::{Hosts, Source};
use tourbillon_inspect::negotiate::{TextFormat, text_format};

/// The allowed host name, in addition to addresses and `localhost`.
pub const ALLOWED: &str = "box.example";

pub fn run(bytes: &[u8]) {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut words = first.splitn(2, |&byte| byte == b' ');
    let mut word = || words.next().unwrap_or_default();
    let Ok(method) = Method::from_bytes(word()) else {
        return;
    };
    let Ok(uri) = Uri::try_from(word()) else {
        return;
    };
    let mut headers = HeaderMap::new();
    for line in lines {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = HeaderValue::from_bytes(parts.next().unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let hosts = allow(ALLOWED).expect("it is a name");
    let mut request = Request::new(());
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    let said = match hosts.check(&request, &["http://"]) {
        _ if !matches!(method, Method::GET | Method::HEAD) => 405,
        Ok(Source::Link) if uri.path() != "/" => 403,
        Ok(_) => 200,
        Err(refused) => refused.status().as_u16(),
    };
    assert_eq!(said, verdict(&method, &uri, &headers), "{uri} {headers:?}");
    check_format(&headers);
    check_names(&headers);
}

fn allow(name: &str) -> Option<Hosts> {
    let mut hosts = Hosts::default();
    hosts.allow(name).ok().map(|()| hosts)
}

/// Checks that OpenMetrics is sent only to clients that name it, and always to clients that
/// accept nothing else.
fn check_format(headers: &HeaderMap) {
    let asked = headers.get_all("accept").iter();
    let asked: Vec<_> = asked.filter_map(|value| value.to_str().ok()).collect();
    let asked = asked.join(",").to_lowercase();
    let is_named = asked.contains("application/openmetrics-text");
    let is_open = text_format(headers) == TextFormat::OpenMetrics;
    assert!(is_named || !is_open, "{asked}");
    if asked == "application/openmetrics-text" {
        assert!(is_open);
    }
}

/// Checks that an allowed name is accepted in any spelling, and that other names are refused.
fn check_names(headers: &HeaderMap) {
    let Some(name) = headers.get("x-allow").and_then(|name| name.to_str().ok()) else {
        return;
    };
    let Some(hosts) = allow(name) else {
        return;
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok() || name.starts_with('[');
    let bare = match is_address {
        true => "",
        false => name.split(':').next().unwrap_or_default(),
    };
    if !is_address {
        for written in [
            bare.to_owned(),
            bare.to_uppercase(),
            format!("{bare}:80"),
            name.to_owned(),
        ] {
            assert!(hosts.is_ours(&written), "{name} does not allow {written}");
        }
        for other in [
            format!("x{bare}"),
            format!("{bare}.evil"),
            format!("evil.{bare}"),
        ] {
            let is_known = is_ours(&other, "");
            assert_eq!(hosts.is_ours(&other), is_known, "{name} lets {other} in");
        }
    }
    for host in headers.get_all("host") {
        if let Ok(host) = host.to_str() {
            let other = hosts.is_ours(host);
            let bare = bare.strip_suffix('.').unwrap_or(bare);
            assert_eq!(other, is_ours(host, bare), "{name} and {host}");
        }
    }
}

/// Returns the expected status, by the documentation: 405, 421, 403 in this order, or 200.
pub fn verdict(method: &Method, uri: &Uri, headers: &HeaderMap) -> u16 {
    let texts = |name: &str| -> Vec<Option<String>> {
        let values = headers.get_all(name).iter();
        let values = values.map(|value| value.to_str().ok().map(str::to_owned));
        values.collect()
    };
    if !["GET", "HEAD"].contains(&method.as_str()) {
        return 405;
    }
    let target = uri.authority().map(|named| named.as_str().to_lowercase());
    let host = match &texts("host")[..] {
        [Some(host)] => host.to_lowercase(),
        _ => return 421,
    };
    if target.is_some_and(|target| target != host) || !is_ours(&host, ALLOWED) {
        return 421;
    }
    // The origin must be the page itself, unless a link leads to it.
    let own = format!("http://{host}");
    let is_own = |origin: &Option<String>| {
        // The scheme must be in lower case, as browsers write it; the host can be in any case.
        let rest = origin.as_deref().and_then(|it| it.strip_prefix("http://"));
        rest.is_some_and(|rest| format!("http://{}", rest.to_lowercase()) == own)
    };
    let is_here =
        |site: &Option<String>| matches!(site.as_deref(), Some("same-origin") | Some("none"));
    let is = |name: &str, wanted: &str| matches!(&texts(name)[..], [Some(said)] if said == wanted);
    let is_link =
        uri.path() == "/" && is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
    let (site, origins) = (texts("sec-fetch-site"), texts("origin"));
    match origins.len() < 2 && origins.iter().all(is_own) && (site.iter().all(is_here) || is_link) {
        true => 200,
        false => 403,
    }
}

/// Returns whether a host is an address, `localhost` or the allowed name, with or without a port.
pub fn is_ours(host: &str, allowed: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let end = match host.starts_with('[') {
        true => host.find(']').map_or(host.len(), |at| at + 1),
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at(end);
    let is_port = |port: &str| {
        let number = port.trim_start_matches('0');
        let is_small = number.len() <= 5 && number.parse().unwrap_or(0) <= 65_535_u32;
        !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()) && is_small
    };
    let has_port = match rest.strip_prefix(':') {
        Some(port) => is_port(port),
        None => rest.is_empty(),
    };
    let is_v4 = || {
        let parts: Vec<_> = name.split('.').collect();
        let is_part = |part: &&str| {
            matches!(part.len(), 1..=3)
                && part.chars().all(|c| c.is_ascii_digit())
                && (part.len() == 1 || !part.starts_with('0'))
                && part.parse::<u16>().is_ok_and(|part| part < 256)
        };
        parts.len() == 4 && parts.iter().all(is_part)
    };
    let is_v6 = || {
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        bare.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let is_known = |known: &str| {
        let name = name.strip_suffix('.').unwrap_or(name);
        !known.is_empty() && name == known.to_ascii_lowercase()
    };
    has_port && (name == "localhost" || is_v4() || is_v6() || is_known(allowed))
}
