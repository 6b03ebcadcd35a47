//! A strict parser of answers.

use super::show;

/// Known properties of the requests.
#[derive(Clone, Copy)]
pub struct Known {
    /// Whether some may be `HEAD`: their answers have a length but no body.
    pub has_heads: bool,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(is, _)| is == name);
        let value = found.next()?;
        assert!(found.next().is_none(), "{name} twice");
        Some(&value.1)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|at| at == what)
}

/// Returns whether the bytes contain the head of an endless answer.
pub fn has_endless(said: &[u8]) -> bool {
    find(said, b"\r\ncontent-type: text/event-stream\r\n")
        .is_some_and(|at| find(&said[at..], b"\r\n\r\n").is_some())
}

/// Parses all answers. Also returns whether the last one is complete.
pub fn parse(mut said: &[u8], known: Known) -> (Vec<Answer>, bool) {
    let mut answers = Vec::new();
    while !said.is_empty() {
        let Some(end) = find(said, b"\r\n\r\n") else {
            let start = b"HTTP/1.";
            let length = start.len().min(said.len());
            assert_eq!(said[..length], start[..length], "{}", show(said));
            return (answers, false);
        };
        let mut answer = head(&said[..end]);
        said = &said[end + 4..];
        if answer.header("content-type") == Some("text/event-stream") {
            answers.push(answer);
            break;
        }
        assert!(
            answer.header("transfer-encoding").is_none(),
            "{answer:?} is of a length that is known"
        );
        let length = answer.header("content-length").map_or(0, |length| {
            assert!(length.bytes().all(|byte| byte.is_ascii_digit()), "{length}");
            length.parse().expect("it is a number")
        });
        let has_none = answer.status < 200
            || known.has_heads && (said.is_empty() || said.starts_with(b"HTTP/1."));
        if !has_none {
            let is_cut = said.len() < length;
            answer.body = said[..length.min(said.len())].to_vec();
            said = &said[answer.body.len()..];
            if is_cut {
                answers.push(answer);
                return (answers, false);
            }
        }
        answers.push(answer);
    }
    let has_any = !answers.is_empty();
    (answers, has_any)
}

fn head(bytes: &[u8]) -> Answer {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("{}", show(bytes)));
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| first.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.unwrap_or_else(|| panic!("a line of status: {first:?}"));
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        assert!(!name.is_empty() && name.chars().all(is_token), "{line:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
        (name.to_ascii_lowercase(), value.to_owned())
    };
    Answer {
        status,
        headers: lines.map(header).collect(),
        body: Vec::new(),
    }
}

/// Checks frames of HTTP/2: settings come first, and no frame exceeds the default maximum. The last
/// one may be cut off.
pub fn check_frames(mut said: &[u8]) {
    let mut is_first = true;
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = said {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        assert!(length <= 16 * 1024, "a frame of {length} bytes");
        assert!(!is_first || *kind == 4, "{kind} before the settings");
        is_first = false;
        said = rest.get(length..).unwrap_or_default();
    }
}
