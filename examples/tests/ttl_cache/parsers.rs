//! Parts of the example `ttl_cache` by themselves: its parser, for any bytes split in any way, and
//! its patterns.

#[path = "../../ttl_cache/glob.rs"]
mod glob;
#[path = "../../ttl_cache/resp.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod resp;

use glob::Case;
use proptest::{collection::vec, prelude::*};
use resp::{MAX_ARGS, MAX_BESIDES, MAX_LINE, Parser, ProtocolError, integer};

const MAX_BULK: usize = 1_000;

type Request = Vec<Vec<u8>>;

/// Parses bytes that come in pieces, as on a connection. Returns the requests, and the error
/// after them. Checks that a rest that waits for more is not longer than the parser allows.
fn parse(pieces: &[&[u8]]) -> (Vec<Request>, Option<ProtocolError>) {
    let mut parser = Parser::new(MAX_BULK);
    let mut input = Vec::new();
    let mut requests = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&mut input) {
                Ok(Some(length)) => {
                    let args = parser.args(&input);
                    assert_eq!(args.len(), args.from(0).count());
                    if !args.is_empty() {
                        requests.push(args.from(0).map(<[u8]>::to_vec).collect());
                    }
                    input.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(
            input.len() < parser.max_request() || piece.len() > 1,
            "it waits for too much"
        );
    }
    (requests, None)
}

fn cut(bytes: &[u8], mut at: Vec<usize>) -> Vec<&[u8]> {
    at.iter_mut().for_each(|at| *at %= bytes.len() + 1);
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn encode(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for arg in request {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns an inline command that means the same.
fn inline(request: &[Vec<u8>]) -> Vec<u8> {
    let words = request.iter().map(|arg| {
        let escaped: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{escaped}\"")
    });
    let line = words.collect::<Vec<_>>().join(" ");
    format!("{line}\r\n").into_bytes()
}

proptest! {
    #[test]
    fn any_pipeline_parses_the_same_however_it_is_split(
        requests in vec((vec(vec(any::<u8>(), 0..40), 1..6), any::<bool>()), 1..8),
        at in vec(any::<usize>(), 0..12),
    ) {
        let bytes: Vec<u8> = requests
            .iter()
            .flat_map(|(request, is_inline)| if *is_inline { inline(request) } else { encode(request) })
            .collect();
        let meant: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        prop_assert_eq!(parse(&cut(&bytes, at)), (meant.clone(), None));
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(parse(&single), (meant, None));
    }

    #[test]
    fn any_bytes_parse_the_same_however_they_are_split(
        bytes in vec(prop_oneof![
            any::<u8>(),
            proptest::sample::select(b"*$\r\n01239-\"'\\x ".to_vec()),
        ], 0..300),
        at in vec(any::<usize>(), 0..12),
    ) {
        let whole = parse(&[&bytes]);
        prop_assert_eq!(&parse(&cut(&bytes, at)), &whole);
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(&parse(&single), &whole);
    }

    #[test]
    fn bytes_like_requests_parse_the_same_however_they_are_split(
        parts in vec(proptest::sample::select(vec![
            "*1\r\n", "*2\r\n", "*-1\r\n", "*0\r\n", "$3\r\n", "abc\r\n", "$0\r\n", "\r\n", "$-1\r\n", "PING\r\n", "*", "$",
            "'a b' c\n", "\"\\x4",
        ]), 0..30),
        at in vec(any::<usize>(), 0..12),
    ) {
        let bytes = parts.concat().into_bytes();
        prop_assert_eq!(parse(&cut(&bytes, at)), parse(&[&bytes]));
    }

    #[test]
    fn a_number_has_one_valid_spelling(number in any::<i64>(), text in "[-+0-9 ]{0,4}") {
        prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        let parsed = integer(text.as_bytes());
        prop_assert_eq!(parsed.map(|number| number.to_string()), parsed.map(|_| text));
    }
}

#[test]
fn inline_commands_split_into_words_as_in_redis() {
    let words = |line: &str| match parse(&[line.as_bytes()]) {
        (requests, None) => Ok(requests
            .concat()
            .into_iter()
            .map(|word| String::from_utf8(word).unwrap())
            .collect::<Vec<_>>()),
        (_, Some(error)) => Err(error),
    };
    let is = |line, meant: &[&str]| {
        let meant: Vec<_> = meant.iter().map(|word| word.to_string()).collect();
        assert_eq!(words(line), Ok(meant), "{line:?}");
    };
    is(" get \t key \r\n", &["get", "key"]);
    is("get key\n", &["get", "key"]);
    is("set k 'it\\'s \\n' \n", &["set", "k", "it's \\n"]);
    is(
        "set k \"\\x41\\t\\\"\\\\\\q\\x4\"\n",
        &["set", "k", "A\t\"\\qx4"],
    );
    is("set '' a\"b c\"\n", &["set", "", "ab c"]);
    for wrong in ["a 'b\n", "a \"b\n", "'a'b\n", "\"a\"'b'\n", "\"a\\\n"] {
        assert_eq!(words(wrong), Err(ProtocolError::Quotes), "{wrong:?}");
    }
}

#[test]
fn limits_are_exact() {
    let error = |bytes: &[u8]| parse(&[bytes]).1;
    let bulk = |len: usize| encode(&[vec![b'x'; len]]);
    assert_eq!(parse(&[&bulk(MAX_BULK)]).0.len(), 1);
    // The header is enough to refuse it, before the bytes come.
    assert_eq!(error(b"*1\r\n$1001\r\n"), Some(ProtocolError::Length));
    assert_eq!(error(b"*1\r\n$-1\r\n"), Some(ProtocolError::Length));
    assert_eq!(error(format!("*{MAX_ARGS}\r\n").as_bytes()), None);
    let more = format!("*{}\r\n", MAX_ARGS + 1);
    assert_eq!(error(more.as_bytes()), Some(ProtocolError::Count));
    assert_eq!(error(&vec![b'x'; MAX_LINE]), None);
    let line = Some(ProtocolError::Line("inline request"));
    assert_eq!(error(&vec![b'x'; MAX_LINE + 1]), line);
    let many = MAX_BESIDES / MAX_BULK + 10;
    let big = encode(&vec![vec![b'x'; MAX_BULK]; many]);
    assert_eq!(error(&big), Some(ProtocolError::TooBig));
}

/// Matches a pattern by redis's rules, without regard to the time that this takes. It knows no
/// sets: the comparison with redis covers them.
fn plainly_matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            plainly_matches(rest, text)
                || text
                    .split_first()
                    .is_some_and(|(_, text)| plainly_matches(pattern, text))
        }
        ([b'?', rest @ ..], [_, text @ ..]) => plainly_matches(rest, text),
        ([b'\\', escaped, rest @ ..], [byte, text @ ..]) => {
            escaped == byte && plainly_matches(rest, text)
        }
        ([plain, rest @ ..], [byte, text @ ..]) => plain == byte && plainly_matches(rest, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_glob_pattern_matches_like_a_plain_matcher(
        pattern in "[ab*?\\\\]{0,9}",
        text in "[ab*\\\\]{0,9}",
    ) {
        let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
        let is_match = glob::matches(pattern, text, Case::Matters);
        prop_assert_eq!(is_match, plainly_matches(pattern, text));
        let other_case = pattern.to_ascii_uppercase();
        prop_assert_eq!(glob::matches(&other_case, text, Case::Ignored), is_match);
    }
}

#[test]
fn a_glob_pattern_of_many_stars_is_matched_quickly() {
    let pattern = b"a*".repeat(500);
    let text = b"a".repeat(1_000_000);
    assert!(glob::matches(&pattern, &text, Case::Matters));
    let pattern = [&pattern[..], b"b"].concat();
    assert!(!glob::matches(&pattern, &text, Case::Matters));
}
