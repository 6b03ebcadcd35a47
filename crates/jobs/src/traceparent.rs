//! The context of a trace, as W3C has defined it.

/// Returns whether a text is a `traceparent`, as W3C has defined it: a version, a trace, a parent
/// and flags. The version `ff` is invalid, and so are a trace and a parent of zero.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_w3c_is_taken() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&good.replace("00-4", "cc-4")));
        for bad in [
            "".to_owned(),
            good.to_uppercase(),
            good.replace("00-4", "ff-4"),
            good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            good.replace("00f067aa0ba902b7", "0f067aa0ba902b7"),
            format!("{good}-more"),
            format!("{good} "),
            good.replace("-01", "-0g"),
            good.replace("-01", "-\u{e9}"),
        ] {
            assert!(!is_traceparent(&bad), "{bad}");
        }
    }
}
