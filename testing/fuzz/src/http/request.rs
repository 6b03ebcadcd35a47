//! Simple requests, whose meaning is unambiguous.

use hyper::{
    HeaderMap, Method, Uri,
    header::{HeaderName, HeaderValue},
};

use crate::guard::{ALLOWED, verdict};

pub struct Request {
    method: Method,
    pub uri: Uri,
    headers: HeaderMap,
}

impl Request {
    pub fn verdict(&self) -> u16 {
        verdict(&self.method, &self.uri, &self.headers)
    }

    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Returns whether nothing exists at the path. The page's files have names of letters.
    pub fn is_nothing(&self) -> bool {
        let path = self.uri.path();
        let file = path.strip_prefix('/').unwrap_or(path);
        let is_file = ["style.css"].contains(&file) || is_script(file);
        !is_file && !["/", "/snapshot.json", "/events", "/metrics"].contains(&path)
    }
}

fn is_script(file: &str) -> bool {
    let names = "app buckets canvas charts columns format frame heatmap history lanes matrix \
                 palette stream tables tiles tip view window";
    let name = file.strip_suffix(".js");
    name.is_some_and(|name| names.split(' ').any(|is| is == name))
}

/// Parses one request without a body that ends with the input and has no ambiguous header.
pub fn plain(sent: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(sent).ok()?;
    let is_plain = |c: char| matches!(c, ' '..='~' | '\r' | '\n');
    if sent.len() > 4_096 || !text.chars().all(is_plain) {
        return None;
    }
    let head = text.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if version != "HTTP/1.1" || words.next().is_some() || method == "CONNECT" {
        return None;
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "/.:_-?=&[]@".contains(c);
    let is_path = target.starts_with('/') && !target.starts_with("//");
    if !target.chars().all(is_safe) || !(is_path || target.starts_with("http://")) {
        return None;
    }
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || !name.chars().all(is_token) || value.contains(['\r', '\n']) {
            return None;
        }
        let name = name.to_ascii_lowercase();
        if [
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "expect",
            "te",
        ]
        .contains(&&*name)
        {
            return None;
        }
        let value = HeaderValue::from_str(value.trim()).ok()?;
        headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    if headers.len() > 40 {
        return None;
    }
    Some(Request {
        method: method.parse().ok()?,
        uri: target.parse().ok()?,
        headers,
    })
}

/// Returns whether the request contains an allowed host name, or what may be an address.
pub fn may_be_ours(sent: &[u8]) -> bool {
    let sent = sent.to_ascii_lowercase();
    let has = |what: &[u8]| sent.windows(what.len()).any(|at| at == what);
    let has_address = sent.split(|byte| !byte.is_ascii_digit() && *byte != b'.');
    let is_address = |word: &[u8]| word.iter().filter(|&&byte| byte == b'.').count() >= 3;
    has(b"host:")
        && (has(b"localhost")
            || has(ALLOWED.as_bytes())
            || has(b"[")
            || has_address.into_iter().any(is_address))
}
