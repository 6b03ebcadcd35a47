//! Fuzzes the parser of the example `ttl_cache`, and its replies. The result must not depend on how
//! the bytes are cut, and must equal that of a simple parser that needs all bytes at once.
//!
//! The input: the maximum length of a bulk string; whether and up to which length the rest is
//! repeated; the number and positions of the cuts; and then the bytes to parse.

use arbitrary::Unstructured;

#[path = "../../examples/ttl_cache/resp.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod parser;
#[path = "../../examples/ttl_cache/reply.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod replies;

use parser::{MAX_ARGS, MAX_BESIDES, MAX_LINE, Parser, ProtocolError, integer};
use replies::Replies;

type Request = Vec<Vec<u8>>;
type Parsed = (Vec<Request>, Option<ProtocolError>);

/// Maximum length of repeated bytes: more than the maximum of a request.
const MOST: usize = MAX_BESIDES + 2 * MAX_LINE;

/// Maximum number of repetitions. More take long and find no more errors.
const MOST_TIMES: usize = 10_000;

pub fn run(bytes: &[u8]) {
    let may_be_long = is_drawn(bytes);
    let mut bytes = Unstructured::new(bytes);
    let (bulk, times, cuts): (u8, u8, [u16; 4]) = bytes.arbitrary().unwrap_or_default();
    let max_bulk = usize::from(bulk).max(1) * 4;
    let sent = bytes.take_rest();
    // Repeat rarely: only long input reaches the limits.
    let most = match times {
        _ if !may_be_long => 0,
        ..=0xF7 => 0,
        0xFF => MOST,
        some => (MAX_LINE >> 5) << (some & 7),
    };
    // Do not repeat the first line: it may be the head of the rest.
    let line = sent.iter().position(|&byte| byte == b'\n');
    let (head, rest) = sent.split_at(line.map_or(0, |end| end + 1));
    let times = (most / rest.len().max(1)).clamp(1, MOST_TIMES);
    let sent = [head, &rest.repeat(times)].concat();

    // However the bytes are cut, the result must be the same.
    let whole = parse(max_bulk, &[&sent]);
    assert_eq!(parse(max_bulk, &cut(&sent, &cuts)), whole, "cut");
    if sent.len() <= 8 * 1024 {
        let single: Vec<_> = sent.chunks(1).collect();
        assert_eq!(parse(max_bulk, &single), whole, "byte by byte");
    }
    let careless = careless(max_bulk, &sent);
    if let Some(careless) = careless {
        assert_eq!(careless, whole, "beside the plain one");
    }
    if sent.len() < MAX_LINE {
        // Encode the requests and parse them again: the result must be equal.
        let again: Vec<u8> = whole.0.iter().flat_map(encode).collect();
        assert_eq!(parse(max_bulk.max(MAX_LINE), &[&again]), (whole.0, None));
        check_numbers(&sent);
        check_replies(&sent);
    }
}

/// Returns `true` for one input in sixteen. Long inputs reach much new code, so a fuzzer would soon
/// try nothing else.
fn is_drawn(bytes: &[u8]) -> bool {
    let mix = |sum: u8, byte: &u8| sum.wrapping_mul(31).wrapping_add(*byte);
    bytes.iter().fold(0, mix) < 16
}

/// Parses bytes that arrive in pieces, as a connection does.
fn parse(max_bulk: usize, pieces: &[&[u8]]) -> Parsed {
    let mut parser = Parser::new(max_bulk);
    let mut input = Vec::new();
    let mut requests: Vec<Request> = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut from = 0;
        loop {
            match parser.parse(&mut input[from..]) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= input.len() - from, "over-read");
                    let args = parser.args(&input[from..from + length]);
                    assert!(args.len() <= MAX_ARGS);
                    let args: Request = args.from(0).map(<[u8]>::to_vec).collect();
                    if !args.is_empty() {
                        requests.push(args);
                    }
                    from += length;
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        input.drain(..from);
        assert!(
            input.len() < parser.max_request(),
            "it waits for more than it says: {}",
            input.len()
        );
    }
    (requests, None)
}

fn cut<'a>(sent: &'a [u8], at: &[u16]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = at
        .iter()
        .map(|&at| usize::from(at) * 31 % (sent.len() + 1))
        .collect();
    at.extend([0, sent.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &sent[ends[0]..ends[1]]).collect()
}

fn encode(request: &Request) -> Vec<u8> {
    let mut replies = Replies::default();
    replies.array(request.len());
    for arg in request {
        replies.bulk(arg);
    }
    replies.bytes().to_vec()
}

/// Parses complete bytes by the simplest means. Returns `None` if a limit may matter that this
/// parser does not have.
fn careless(max_bulk: usize, mut rest: &[u8]) -> Option<Parsed> {
    if rest.len() >= MAX_LINE {
        return None;
    }
    let mut requests = Vec::new();
    loop {
        match careless_request(max_bulk, rest) {
            Ok(None) => return Some((requests, None)),
            Ok(Some((request, length))) => {
                if !request.is_empty() {
                    requests.push(request);
                }
                rest = &rest[length..];
            }
            Err(error) => return Some((requests, Some(error))),
        }
    }
}

fn careless_request(
    max_bulk: usize,
    sent: &[u8],
) -> Result<Option<(Request, usize)>, ProtocolError> {
    let line = |from: usize| {
        let end = sent[from..].iter().position(|&byte| byte == b'\n');
        end.map(|end| (&sent[from..from + end], from + end + 1))
    };
    let number = |line: &[u8]| {
        let text = std::str::from_utf8(line.strip_suffix(b"\r")?).ok()?;
        let number: i64 = text.parse().ok()?;
        (number.to_string() == text).then_some(number)
    };
    let Some((first, mut at)) = line(0) else {
        return Ok(None);
    };
    let Some(count) = first.strip_prefix(b"*") else {
        return Ok(Some((words(first).ok_or(ProtocolError::Quotes)?, at)));
    };
    let count = number(count).filter(|&count| count <= MAX_ARGS as i64);
    let count = count.ok_or(ProtocolError::Count)?;
    let mut request = Vec::new();
    for _ in 0..count.max(0) {
        match sent.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NoBulk(other)),
        }
        let Some((head, body)) = line(at) else {
            return Ok(None);
        };
        let length = number(&head[1..]).filter(|&length| (0..=max_bulk as i64).contains(&length));
        let length = length.ok_or(ProtocolError::Length)? as usize;
        let Some(tail) = sent.get(body + length..body + length + 2) else {
            return Ok(None);
        };
        if tail != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        request.push(sent[body..body + length].to_vec());
        at = body + length + 2;
    }
    Ok(Some((request, at)))
}

/// Splits an inline command into words. Returns `None` if a quote is not closed, or is followed by
/// a character.
fn words(line: &[u8]) -> Option<Request> {
    let is_space = |byte: u8| matches!(byte, 9..=13 | 32);
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = line.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if is_space(byte) {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        if !matches!(byte, b'"' | b'\'') {
            word.push(byte);
            continue;
        }
        loop {
            let next = rest.next()?;
            if next == byte {
                break;
            }
            let escapes = next == b'\\';
            if escapes && byte == b'\'' && rest.peek() == Some(&b'\'') {
                word.extend(rest.next());
            } else if escapes && byte == b'"' {
                let mut ahead = rest.clone();
                let digits: Vec<u8> = ahead.by_ref().take(3).collect();
                match digits[..] {
                    [b'x', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                        let text = String::from_utf8(vec![a, b]).expect("they are digits");
                        word.push(u8::from_str_radix(&text, 16).expect("they are digits"));
                        rest = ahead;
                    }
                    [] => return None,
                    _ => {
                        let plain = rest.next().expect("it was seen");
                        word.push(match plain {
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            b'b' => 8,
                            b'a' => 7,
                            other => other,
                        });
                    }
                }
            } else {
                word.push(next);
            }
        }
        if rest.peek().is_some_and(|&next| !is_space(next)) {
            return None;
        }
    }
    words.extend(word);
    Some(words)
}

/// Checks that each number has only one accepted spelling.
fn check_numbers(sent: &[u8]) {
    for word in sent.split(|byte| !byte.is_ascii_digit() && *byte != b'-') {
        if let Some(number) = integer(word) {
            assert_eq!(number.to_string().as_bytes(), word);
            let mut replies = Replies::default();
            replies.integer(number);
            assert_eq!(replies.bytes(), format!(":{number}\r\n").as_bytes());
        }
    }
}

/// Checks that an error is one line, whatever the client sent, and that a bulk string is unchanged.
fn check_replies(sent: &[u8]) {
    let mut replies = Replies::default();
    replies.error(&String::from_utf8_lossy(sent));
    let line = replies.bytes();
    assert!(line.starts_with(b"-") && line.ends_with(b"\r\n"));
    let text = &line[1..line.len() - 2];
    assert!(!text.contains(&b'\r') && !text.contains(&b'\n'));
    let mut replies = Replies::default();
    replies.maybe_bulk(Some(sent));
    let head = format!("${}\r\n", sent.len());
    let bulk = [head.as_bytes(), sent, b"\r\n"].concat();
    assert_eq!(replies.bytes(), bulk);
    // Elements that were encoded apart must follow their number, which follows the earlier bytes.
    let mut both = Replies::default();
    both.null();
    both.array_of(1, replies);
    assert_eq!(both.bytes(), [&b"$-1\r\n*1\r\n"[..], &bulk].concat());
    let text = String::from_utf8_lossy(sent);
    let mut replies = Replies::default();
    replies.resp3 = true;
    replies.text(&text);
    let plain = format!("={}\r\ntxt:{text}\r\n", text.len() + 4);
    assert_eq!(replies.bytes(), plain.as_bytes());
}
