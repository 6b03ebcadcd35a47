//! Commands about deadlines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tourbillon::time::Instant;

use super::{Context, Error, is};
use crate::{
    resp::{Args, integer},
    store::{Deadline, Only},
};

/// The unit of a time in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    /// Since 1970, as the next one.
    UnixSeconds,
    UnixMillis,
}

impl Unit {
    /// Returns the deadline.
    pub(super) fn deadline(self, amount: i64, command: &'static str) -> Result<Deadline, Error> {
        let invalid = || Error::ExpireTime(command);
        let millis = match self {
            Self::Seconds | Self::UnixSeconds => amount.checked_mul(1_000).ok_or_else(invalid)?,
            Self::Millis | Self::UnixMillis => amount,
        };
        // Read this clock first: so the timer cannot be early.
        let unix = unix_now();
        let now = Instant::now();
        let (unix_ms, left) = match self {
            Self::Seconds | Self::Millis => {
                let unix_ms = (unix.as_millis() as i64).checked_add(millis);
                let left = Duration::from_millis(millis.try_into().unwrap_or(0));
                (unix_ms.ok_or_else(invalid)?, left)
            }
            Self::UnixSeconds | Self::UnixMillis => {
                let since_1970 = Duration::from_millis(millis.try_into().unwrap_or(0));
                (millis, since_1970.saturating_sub(unix))
            }
        };
        let at = now.checked_add(left);
        Ok(Deadline { unix_ms, at })
    }
}

/// Returns the time since 1970 by the wall clock.
pub(super) fn unix_now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Parses the number of a command.
pub(super) fn amount(text: &[u8]) -> Result<i64, Error> {
    integer(text).ok_or(Error::NotAnInteger)
}

pub(super) fn expire(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    expire_in(context, args, Unit::Seconds, "expire")
}

pub(super) fn pexpire(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    expire_in(context, args, Unit::Millis, "pexpire")
}

pub(super) fn expireat(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    expire_in(context, args, Unit::UnixSeconds, "expireat")
}

pub(super) fn pexpireat(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    expire_in(context, args, Unit::UnixMillis, "pexpireat")
}

/// `EXPIRE key amount [NX | XX | GT | LT]`. A time in the past removes the key.
fn expire_in(
    context: &mut Context<'_>,
    args: Args<'_>,
    unit: Unit,
    name: &'static str,
) -> Result<(), Error> {
    let mut only = Only::default();
    for option in args.from(3) {
        match option {
            _ if is(option, "nx") => only.unset = true,
            _ if is(option, "xx") => only.set = true,
            _ if is(option, "gt") => only.later = true,
            _ if is(option, "lt") => only.earlier = true,
            _ => return Err(Error::expire_option(option)),
        }
    }
    if only.unset && (only.set || only.later || only.earlier) {
        return Err(Error::ExpireNx);
    }
    if only.later && only.earlier {
        return Err(Error::ExpireGtLt);
    }
    let deadline = unit.deadline(amount(&args[2])?, name)?;
    let store = &context.server.store;
    let moved = store.expire_at(&args[1], deadline, only);
    context.out.integer(moved.into());
    Ok(())
}

pub(super) fn persist(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let had_one = context.server.store.persist(&args[1]);
    context.out.integer(had_one.into());
    Ok(())
}

pub(super) fn ttl(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    tell(context, args, |deadline| seconds(millis_left(deadline)))
}

pub(super) fn pttl(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    tell(context, args, millis_left)
}

pub(super) fn expiretime(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    tell(context, args, |deadline| seconds(deadline.unix_ms))
}

pub(super) fn pexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    tell(context, args, |deadline| deadline.unix_ms)
}

/// Replies with the result of `what` for a key's deadline; -1 without a deadline, -2 without a key.
fn tell(
    context: &mut Context<'_>,
    args: Args<'_>,
    what: impl FnOnce(Deadline) -> i64,
) -> Result<(), Error> {
    let reply = match context.server.store.deadline(&args[1]) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => what(deadline),
    };
    context.out.integer(reply);
    Ok(())
}

/// Rounds to the nearest second, as redis does.
fn seconds(millis: i64) -> i64 {
    // No deadline is before 1970. Unsigned, the largest one can be rounded up.
    ((millis.max(0) as u64 + 500) / 1_000) as i64
}

/// Returns the remaining milliseconds, rounded up.
fn millis_left(deadline: Deadline) -> i64 {
    match deadline.at {
        // Use the timer's clock, which steps of the wall clock do not change.
        Some(at) => {
            let left = at.duration_since(Instant::now());
            i64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
        }
        // The deadline is beyond that clock's range.
        None => deadline.unix_ms - unix_now().as_millis() as i64,
    }
}
