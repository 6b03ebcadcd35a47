//! Commands about values.

use super::{Context, Error, Resume, expiry, is};
use crate::{
    connection::FLUSH,
    resp::Args,
    store::{Expiry, When},
};

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let out = &mut *context.out;
    context
        .server
        .store
        .get(&args[1], Expiry::Keep, |value| out.maybe_bulk(value));
    Ok(())
}

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`, options in any
/// order. If an option is repeated, the last one counts.
pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (mut expiry, mut when, mut give_old) = (None, When::Always, false);
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        if is(option, "nx") && when != When::Present {
            when = When::Absent;
        } else if is(option, "xx") && when != When::Absent {
            when = When::Present;
        } else if is(option, "get") {
            give_old = true;
        } else if is(option, "keepttl") {
            Time::Keep.replace(&mut expiry)?;
        } else {
            Time::option(option, options.next())?.replace(&mut expiry)?;
        }
    }
    // Without an option, SET removes the old deadline.
    let expiry = expiry.map_or(Ok(Expiry::Never), |time| time.expiry("set"))?;
    let store = &context.server.store;
    let was = store.set(&args[1], &args[2], expiry, when, give_old)?;
    match was.old {
        Some(old) => context.out.bulk(&old),
        None if give_old || !was.set => context.out.null(),
        None => context.out.ok(),
    }
    Ok(())
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`
pub(super) fn getex(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut time = None;
    let mut options = args.from(2);
    while let Some(option) = options.next() {
        let option = if is(option, "persist") {
            Time::Never
        } else {
            Time::option(option, options.next())?
        };
        option.replace(&mut time)?;
    }
    let store = &context.server.store;
    let expiry = match time.map_or(Ok(Expiry::Keep), |time| time.expiry("getex")) {
        Ok(expiry) => expiry,
        // Redis does not check the number if the key does not exist.
        Err(_) if store.deadline(&args[1]).is_none() => {
            context.out.null();
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let out = &mut *context.out;
    store.get(&args[1], expiry, |value| out.maybe_bulk(value));
    Ok(())
}

/// `SETEX key seconds value`
pub(super) fn setex(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    set_for(context, args, expiry::Unit::Seconds, "setex")
}

/// `PSETEX key milliseconds value`
pub(super) fn psetex(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    set_for(context, args, expiry::Unit::Millis, "psetex")
}

fn set_for(
    context: &mut Context<'_>,
    args: Args<'_>,
    unit: expiry::Unit,
    name: &'static str,
) -> Result<(), Error> {
    let expiry = Time::At(unit, &args[2]).expiry(name)?;
    let store = &context.server.store;
    store.set(&args[1], &args[3], expiry, When::Always, false)?;
    context.out.ok();
    Ok(())
}

pub(super) fn setnx(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let was = store.set(&args[1], &args[2], Expiry::Never, When::Absent, false)?;
    context.out.integer(was.set.into());
    Ok(())
}

pub(super) fn getset(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let was = store.set(&args[1], &args[2], Expiry::Never, When::Always, true)?;
    context.out.maybe_bulk(was.old.as_deref());
    Ok(())
}

pub(super) fn getdel(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let value = context.server.store.remove(&args[1]);
    context.out.maybe_bulk(value.as_deref());
    Ok(())
}

/// `MGET key…`. It yields when many bytes of replies wait.
pub(super) fn mget(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let first = match context.session.resume.take() {
        Some(Resume::Mget(next)) => next,
        _ => {
            context.out.array(args.len() - 1);
            1
        }
    };
    for (index, key) in (first..).zip(args.from(first)) {
        if context.out.len() >= FLUSH {
            context.session.resume = Some(Resume::Mget(index));
            break;
        }
        let out = &mut *context.out;
        let store = &context.server.store;
        store.get(key, Expiry::Keep, |value| out.maybe_bulk(value));
    }
    Ok(())
}

/// `MSET key value…`
pub(super) fn mset(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len().is_multiple_of(2) {
        return Err(Error::Arity("mset"));
    }
    let keys = args.from(1).step_by(2);
    let pairs = keys.zip(args.from(2).step_by(2));
    context.server.store.set_all(pairs)?;
    context.out.ok();
    Ok(())
}

pub(super) fn incr(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(context, &args[1], 1)
}

pub(super) fn decr(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(context, &args[1], -1)
}

pub(super) fn incrby(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    add(context, &args[1], expiry::amount(&args[2])?)
}

pub(super) fn decrby(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let less = expiry::amount(&args[2])?;
    let more = less.checked_neg().ok_or(Error::DecrementOverflow)?;
    add(context, &args[1], more)
}

/// Adds to a number. A missing key counts as 0.
fn add(context: &mut Context<'_>, key: &[u8], more: i64) -> Result<(), Error> {
    let mut sum = 0;
    context.server.store.update(key, |value| {
        let number = value.map_or(Ok(0), expiry::amount)?;
        sum = number.checked_add(more).ok_or(Error::Overflow)?;
        Ok::<_, Error>(sum.to_string().into_bytes().into())
    })?;
    context.out.integer(sum);
    Ok(())
}

pub(super) fn append(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let most = context.server.options.max_bulk;
    let mut len = 0;
    context.server.store.update(&args[1], |value| {
        let joined = [value.unwrap_or_default(), &args[2]];
        len = joined.iter().map(|part| part.len()).sum();
        if len > most {
            return Err(Error::ValueLength);
        }
        Ok(joined.concat().into())
    })?;
    context.out.integer(len as i64);
    Ok(())
}

pub(super) fn strlen(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let len = store.get(&args[1], Expiry::Keep, |value| value.map_or(0, <[u8]>::len));
    context.out.integer(len as i64);
    Ok(())
}

/// An option about the deadline. Errors in the options are reported before errors in the number.
enum Time<'a> {
    Keep,
    Never,
    At(expiry::Unit, &'a [u8]),
}

impl<'a> Time<'a> {
    fn option(name: &[u8], amount: Option<&'a [u8]>) -> Result<Self, Error> {
        let unit = match name {
            _ if is(name, "ex") => expiry::Unit::Seconds,
            _ if is(name, "px") => expiry::Unit::Millis,
            _ if is(name, "exat") => expiry::Unit::UnixSeconds,
            _ if is(name, "pxat") => expiry::Unit::UnixMillis,
            _ => return Err(Error::Syntax),
        };
        Ok(Self::At(unit, amount.ok_or(Error::Syntax)?))
    }

    /// Replaces an earlier option, which must have the same unit.
    fn replace(self, before: &mut Option<Self>) -> Result<(), Error> {
        let fits = match (&*before, &self) {
            (None, _) | (Some(Self::Keep), Self::Keep) | (Some(Self::Never), Self::Never) => true,
            (Some(Self::At(before, _)), Self::At(unit, _)) => before == unit,
            _ => false,
        };
        if !fits {
            return Err(Error::Syntax);
        }
        *before = Some(self);
        Ok(())
    }

    fn expiry(self, command: &'static str) -> Result<Expiry, Error> {
        match self {
            Self::Keep => Ok(Expiry::Keep),
            Self::Never => Ok(Expiry::Never),
            Self::At(unit, amount) => {
                let amount = expiry::amount(amount)?;
                if amount <= 0 {
                    return Err(Error::ExpireTime(command));
                }
                unit.deadline(amount, command).map(Expiry::At)
            }
        }
    }
}
