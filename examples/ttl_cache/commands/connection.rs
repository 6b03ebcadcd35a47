//! What concerns the connection alone.

use super::{Context, Error, expiry::amount, is};
use crate::resp::{Args, integer};

pub(super) fn ping(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        _ if args.len() > 2 => return Err(Error::Arity("ping")),
        None => context.out.simple("PONG"),
        Some(message) => context.out.bulk(message),
    }
    Ok(())
}

pub(super) fn echo(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    context.out.bulk(&args[1]);
    Ok(())
}

pub(super) fn quit(context: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    context.session.quit = true;
    context.out.ok();
    Ok(())
}

/// There is one database, number 0.
pub(super) fn select(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if amount(&args[1])? != 0 {
        return Err(Error::NoSuchDb);
    }
    context.out.ok();
    Ok(())
}

/// `HELLO [version [SETNAME name]]`. Of RESP3 clients are told that it is not spoken here, after which they go on in RESP2.
pub(super) fn hello(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if let Some(version) = args.get(1) {
        match integer(version) {
            Some(2) => {}
            Some(_) => return Err(Error::NoProto),
            None => return Err(Error::NotAProtocol),
        }
    }
    match (args.get(2), args.get(3)) {
        (None, _) => {}
        (Some(option), Some(name)) if is(option, "setname") && args.len() == 4 => {
            set_name(context, name)?;
        }
        // There are no passwords, hence no AUTH.
        _ => return Err(Error::Syntax),
    }
    let id = context.session.id;
    let out = &mut *context.out;
    out.array(14);
    out.bulk(b"server");
    out.bulk(b"ttl_cache");
    out.bulk(b"version");
    out.bulk(env!("CARGO_PKG_VERSION").as_bytes());
    out.bulk(b"proto");
    out.integer(2);
    out.bulk(b"id");
    out.integer(id as i64);
    out.bulk(b"mode");
    out.bulk(b"standalone");
    out.bulk(b"role");
    out.bulk(b"master");
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

/// `CLIENT ID | GETNAME | SETNAME name | SETINFO attribute value`
pub(super) fn client(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match &args[1] {
        sub if is(sub, "id") => match args.len() {
            2 => context.out.integer(context.session.id as i64),
            _ => return Err(Error::Arity("client|id")),
        },
        sub if is(sub, "getname") => match (args.len(), &*context.session.name) {
            (2, []) => context.out.null(),
            (2, name) => context.out.bulk(name),
            _ => return Err(Error::Arity("client|getname")),
        },
        sub if is(sub, "setname") => match (args.len(), args.get(2)) {
            (3, Some(name)) => {
                set_name(context, name)?;
                context.out.ok();
            }
            _ => return Err(Error::Arity("client|setname")),
        },
        // What a client's library is called: it is told that this was heard.
        sub if is(sub, "setinfo") => match args.len() {
            4 => context.out.ok(),
            _ => return Err(Error::Arity("client|setinfo")),
        },
        sub => return Err(Error::unknown_subcommand(sub, "CLIENT")),
    }
    Ok(())
}

/// How long a client's name may be: it is kept for as long as the connection is.
const LONGEST_NAME: usize = 1024;

fn set_name(context: &mut Context<'_>, name: &[u8]) -> Result<(), Error> {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(Error::ClientName);
    }
    if name.len() > LONGEST_NAME {
        return Err(Error::ClientNameLength(LONGEST_NAME));
    }
    context.session.name = name.into();
    Ok(())
}
