//! Deadlines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tourbillon::time::Instant;

use super::{Context, Error, is};
use crate::{
    resp::{Args, integer},
    store::Only,
};

/// What a number of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    /// Since 1970, as are the next.
    UnixSeconds,
    UnixMillis,
}

impl Unit {
    /// The moment that is meant. A time of day is taken for as long as it is off by now.
    pub(super) fn deadline(self, amount: i64, command: &'static str) -> Result<Instant, Error> {
        let invalid = || Error::ExpireTime(command);
        let millis = match self {
            Self::Seconds | Self::UnixSeconds => amount.checked_mul(1_000).ok_or_else(invalid)?,
            Self::Millis | Self::UnixMillis => amount,
        };
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let left = match self {
            Self::Seconds | Self::Millis => {
                // Redis counts from 1970, which has to fit.
                let now = unix.as_millis() as i64;
                now.checked_add(millis).ok_or_else(invalid)?;
                Duration::from_millis(millis.try_into().unwrap_or(0))
            }
            Self::UnixSeconds | Self::UnixMillis => {
                Duration::from_millis(millis.try_into().unwrap_or(0)).saturating_sub(unix)
            }
        };
        // What is further off than instants reach is as good as their end, in 292 years.
        Ok(Instant::now() + left)
    }
}

/// The number of a command.
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

/// `EXPIRE key amount [NX | XX | GT | LT]`. A moment that has passed removes the key.
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
    let at = unit.deadline(amount(&args[2])?, name)?;
    let moved = context.server.store.expire_at(&args[1], at, only);
    context.out.integer(moved.into());
    Ok(())
}

pub(super) fn persist(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let had_one = context.server.store.persist(&args[1]);
    context.out.integer(had_one.into());
    Ok(())
}

pub(super) fn ttl(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let left = millis_left(context, args);
    // To the nearest second, as redis has it.
    let seconds = if left < 0 { left } else { (left + 500) / 1_000 };
    context.out.integer(seconds);
    Ok(())
}

pub(super) fn pttl(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let left = millis_left(context, args);
    context.out.integer(left);
    Ok(())
}

/// For how long there is a key yet, begun milliseconds counted whole; -1 without a deadline, -2 without a key.
fn millis_left(context: &Context<'_>, args: Args<'_>) -> i64 {
    match context.server.store.deadline(&args[1]) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let left = at.duration_since(Instant::now());
            i64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
        }
    }
}
