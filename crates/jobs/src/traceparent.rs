//! The trace context of a job, as W3C has defined it.

/// The length of a `traceparent`, in bytes.
const LENGTH: usize = 55;

/// Returns whether a text is a `traceparent`, as W3C has defined it: `VERSION-TRACE-PARENT-FLAGS`,
/// of 2, 32, 16 and 2 lower-case hexadecimal digits. The version is not `ff`, and neither the trace
/// nor the parent is all zero.
///
/// [`parse_traceparent`] reads the header of a request.
///
/// ```
/// use tourbillon_jobs::job::is_traceparent;
///
/// assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
/// assert!(!is_traceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
/// ```
pub fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str| {
        part.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let parts: Vec<_> = text.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else {
        return false;
    };
    let lengths = [version, trace, parent, flags].map(str::len);
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    lengths == [2, 32, 16, 2]
        && [version, trace, parent, flags].into_iter().all(is_hex)
        && version != "ff"
        && !is_zero(trace)
        && !is_zero(parent)
}

/// Reads the header `traceparent` of a request, for
/// [`NewJob::traceparent`](crate::NewJob::traceparent). It is as lenient as W3C wants it: an
/// invalid header counts as none, so it is no reason to refuse the job.
///
/// A header of a later version than `00` may have more fields. What `00` knows of it is returned,
/// as version `00`: the trace, the parent and whether the trace is sampled.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_jobs::{NewJob, job::parse_traceparent};
///
/// let mut job = NewJob::new("mail/7", Duration::ZERO, "hello");
/// job.traceparent = parse_traceparent("wrong");
/// assert_eq!(job.traceparent, None);
///
/// let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-05-more";
/// job.traceparent = parse_traceparent(later);
/// let known = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// assert_eq!(job.traceparent.as_deref(), Some(known));
/// ```
pub fn parse_traceparent(header: &str) -> Option<String> {
    if header.starts_with("00") {
        return is_traceparent(header).then(|| header.to_owned());
    }
    let (known, rest) = header.split_at_checked(LENGTH)?;
    if !is_traceparent(known) || !(rest.is_empty() || rest.starts_with('-')) {
        return None;
    }
    let (ids, flags) = (&known[2..LENGTH - 2], &known[LENGTH - 2..]);
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
    Some(format!("00{ids}{sampled:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// Returns texts that have not the form of W3C.
    fn bad() -> [String; 10] {
        [
            "".to_owned(),
            GOOD.to_uppercase(),
            GOOD.replace("00-4", "ff-4"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GOOD.replace("00f067aa0ba902b7", "0f067aa0ba902b7"),
            format!("{GOOD}-more"),
            format!("{GOOD} "),
            GOOD.replace("-01", "-0g"),
            GOOD.replace("-01", "-\u{e9}"),
        ]
    }

    #[test]
    fn only_the_form_of_w3c_is_taken() {
        assert!(is_traceparent(GOOD));
        assert!(is_traceparent(&GOOD.replace("00-4", "cc-4")));
        for bad in bad() {
            assert!(!is_traceparent(&bad), "{bad}");
        }
    }

    #[test]
    fn an_invalid_header_counts_as_none() {
        assert_eq!(parse_traceparent(GOOD).as_deref(), Some(GOOD));
        for bad in bad() {
            assert_eq!(parse_traceparent(&bad), None, "{bad}");
            // Nor of a later version, but for further fields.
            let later = bad.replacen("00-4", "01-4", 1);
            if later != bad && !later.ends_with("-more") {
                assert_eq!(parse_traceparent(&later), None, "{later}");
            }
        }
    }

    #[test]
    fn a_header_of_a_later_version_becomes_one_of_version_00() {
        let later = GOOD.replace("00-4", "cc-4");
        for (flags, more, sampled) in [
            ("01", "", "01"),
            ("ff", "-what-the-future-brings", "01"),
            ("fe", "-", "00"),
            ("00", "-\u{e9}", "00"),
        ] {
            let later = later.replace("-01", &format!("-{flags}{more}"));
            let expected = GOOD.replace("-01", &format!("-{sampled}"));
            assert_eq!(parse_traceparent(&later), Some(expected), "{later}");
        }
        assert_eq!(parse_traceparent(&format!("{later}.more")), None);
        assert_eq!(parse_traceparent(&format!("ff{}-more", &later[2..])), None);
    }
}
