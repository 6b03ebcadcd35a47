//! Commands about keys.

use tourbillon::task::spawn_blocking;

use super::{Context, Error, Resume, expiry::amount, is};
use crate::{
    connection::FLUSH,
    glob::{self, Case},
    reply::Replies,
    resp::Args,
    store::Visit,
};

/// Number of keys that KEYS looks at before it yields.
const KEYS_AT_ONCE: i32 = 10_000;
/// Maximum length of a pattern, in bytes. Matching takes longer with a longer pattern.
const LONGEST_PATTERN: usize = 1024;

pub(super) fn del(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let removed = args.from(1).filter(|key| store.remove(key).is_some());
    context.out.integer(removed.count() as i64);
    Ok(())
}

pub(super) fn exists(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let there = args.from(1).filter(|key| store.deadline(key).is_some());
    context.out.integer(there.count() as i64);
    Ok(())
}

/// `TYPE key`: all values are strings.
pub(super) fn type_of(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let exists = context.server.store.deadline(&args[1]).is_some();
    context.out.simple(if exists { "string" } else { "none" });
    Ok(())
}

pub(super) fn dbsize(context: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    context.out.integer(context.server.stats.keys.get() as i64);
    Ok(())
}

/// `FLUSHALL [ASYNC | SYNC]`: removes all keys before it replies.
pub(super) fn flush(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    check_flush_mode(args, 1)?;
    let keys = context.server.store.clear();
    // Freeing a million keys and cancelling their timers takes too long for this worker.
    spawn_blocking(move || drop(keys));
    context.out.ok();
    Ok(())
}

/// Checks that only `[ASYNC | SYNC]` follows from the argument `at` on.
pub(super) fn check_flush_mode(args: Args<'_>, at: usize) -> Result<(), Error> {
    match args.get(at) {
        None => Ok(()),
        Some(mode) if args.len() == at + 1 && (is(mode, "async") || is(mode, "sync")) => Ok(()),
        Some(_) => Err(Error::Syntax),
    }
}

/// The keys that KEYS has found so far.
#[derive(Debug, Default)]
pub struct Listing {
    /// Position in the store to continue from.
    from: u64,
    found: Replies,
    count: usize,
}

/// `KEYS pattern`. It yields after many keys.
pub(super) fn keys(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let pattern = checked_pattern(&args[1])?;
    let most = context.server.options.max_bulk;
    let mut listing = match context.session.resume.take() {
        Some(Resume::Keys(listing)) => listing,
        _ => Listing::default(),
    };
    let Listing { from, found, count } = &mut listing;
    let mut left = KEYS_AT_ONCE;
    *from = context.server.store.scan(*from, |key| {
        if found.len() <= most && glob::matches(pattern, key, Case::Matters) {
            found.bulk(key);
            *count += 1;
        }
        left -= 1;
        if left <= 0 || found.len() > most {
            Visit::Stop
        } else {
            Visit::Continue
        }
    });
    if found.len() > most {
        return Err(Error::ReplyLength(most));
    }
    if *from == 0 {
        context.out.array_of(listing.count, listing.found);
    } else {
        context.session.resume = Some(Resume::Keys(listing));
    }
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`, options in any order. The cursor is a
/// position in the store.
pub(super) fn scan(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let cursor = std::str::from_utf8(&args[1]).ok();
    let cursor: u64 = cursor
        .and_then(|cursor| cursor.parse().ok())
        .ok_or(Error::Cursor)?;
    let (mut pattern, mut count, mut strings) = (&b"*"[..], 10, true);
    let mut options = args.from(2);
    while let Some(option) = options.next() {
        let value = options.next().ok_or(Error::Syntax)?;
        match option {
            _ if is(option, "match") => pattern = checked_pattern(value)?,
            _ if is(option, "type") => strings = is(value, "string"),
            _ if is(option, "count") => {
                count = amount(value)?;
                if count < 1 {
                    return Err(Error::Syntax);
                }
            }
            _ => return Err(Error::Syntax),
        }
    }
    // Encode the keys apart: their number must precede them.
    let (mut found, mut matched) = (Replies::default(), 0);
    let next = context.server.store.scan(cursor, |key| {
        if strings && glob::matches(pattern, key, Case::Matters) {
            found.bulk(key);
            matched += 1;
        }
        count -= 1;
        // It may return fewer keys than asked for, so it also stops if the keys are long.
        if count <= 0 || found.len() >= FLUSH {
            Visit::Stop
        } else {
            Visit::Continue
        }
    });
    context.out.array(2);
    context.out.bulk(next.to_string().as_bytes());
    context.out.array_of(matched, found);
    Ok(())
}

fn checked_pattern(pattern: &[u8]) -> Result<&[u8], Error> {
    match pattern.len() {
        ..=LONGEST_PATTERN => Ok(pattern),
        _ => Err(Error::PatternLength(LONGEST_PATTERN)),
    }
}
