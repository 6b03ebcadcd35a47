//! Keys and values.

use super::{Context, Error, expiry, is};
use crate::{
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

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`, options in any order. Of one that is given
/// again the last counts.
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
    // Without a word of it, the deadline of the value before is gone as well.
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
        // The number is not looked at where there is no key.
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

pub(super) fn del(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let removed = args.from(1).filter(|key| store.remove(key)).count();
    context.out.integer(removed as i64);
    Ok(())
}

pub(super) fn exists(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let store = &context.server.store;
    let there = args.from(1).filter(|key| store.deadline(key).is_some());
    context.out.integer(there.count() as i64);
    Ok(())
}

/// What an option says about the deadline. What is wrong with the number is told after what is wrong with
/// the options.
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

    /// Takes the place of what was said before, which has to be in the same unit.
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
