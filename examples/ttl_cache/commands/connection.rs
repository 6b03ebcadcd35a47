//! Commands about the connection.

use std::collections::HashSet;

use super::{Context, Error, expiry::amount, is, name_of};
use crate::{
    clients::Peer,
    resp::{Args, integer},
};

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

/// `SELECT index`. There is one database, number 0.
pub(super) fn select(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if amount(&args[1])? != 0 {
        return Err(Error::NoSuchDb);
    }
    context.out.ok();
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(super) fn hello(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let resp3 = match args.get(1).map(integer) {
        None => context.out.resp3,
        Some(Some(2)) => false,
        Some(Some(3)) => true,
        Some(Some(_)) => return Err(Error::NoProto),
        Some(None) => return Err(Error::NotAProtocol),
    };
    let mut at = 2;
    while let Some(option) = args.get(at) {
        at += match (args.get(at + 1), args.get(at + 2)) {
            (Some(user), Some(_)) if is(option, "auth") => {
                authenticate(user)?;
                3
            }
            (Some(name), _) if is(option, "setname") => {
                set_name(context, name)?;
                2
            }
            _ => return Err(Error::hello_option(option)),
        };
    }
    set_protocol(context, resp3);
    let id = context.session.peer.id;
    let out = &mut *context.out;
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"ttl_cache");
    out.bulk(b"version");
    out.bulk(env!("CARGO_PKG_VERSION").as_bytes());
    out.bulk(b"proto");
    out.integer(if resp3 { 3 } else { 2 });
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

fn set_protocol(context: &mut Context<'_>, resp3: bool) {
    context.out.resp3 = resp3;
    context.session.peer.about().resp3 = resp3;
}

/// `AUTH [user] password`
pub(super) fn auth(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.len() {
        2 => return Err(Error::NoPassword),
        3 => authenticate(&args[1])?,
        _ => return Err(Error::Syntax),
    }
    context.out.ok();
    Ok(())
}

/// There is one user without a password, so any password is accepted, as in redis.
fn authenticate(user: &[u8]) -> Result<(), Error> {
    match user {
        b"default" => Ok(()),
        _ => Err(Error::WrongPassword),
    }
}

/// `RESET`: resets the connection's state.
pub(super) fn reset(context: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    set_protocol(context, false);
    context.session.peer.about().name.clear();
    context.out.simple("RESET");
    Ok(())
}

/// `CLIENT ID | INFO | LIST … | GETNAME | SETNAME name | SETINFO attribute value`
pub(super) fn client(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let peer = context.session.peer.clone();
    match &args[1] {
        sub if is(sub, "id") => match args.len() {
            2 => context.out.integer(peer.id as i64),
            _ => return Err(Error::Arity("client|id")),
        },
        sub if is(sub, "info") => match args.len() {
            2 => context.out.text(&peer.line(name_of)),
            _ => return Err(Error::Arity("client|info")),
        },
        sub if is(sub, "list") => list(context, args)?,
        sub if is(sub, "getname") => match (args.len(), &*peer.about().name) {
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
        sub if is(sub, "setinfo") => match args.len() {
            4 => set_info(context, &args[2], &args[3])?,
            _ => return Err(Error::Arity("client|setinfo")),
        },
        sub => return Err(Error::unknown_subcommand(sub, "CLIENT")),
    }
    Ok(())
}

/// `CLIENT LIST [TYPE type | ID id…]`
fn list(context: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let number = |id| integer(id).and_then(|id| u64::try_from(id).ok());
    let mut ids = None;
    let mut normal = true;
    match (args.get(2), args.get(3)) {
        (None, _) => {}
        (Some(option), Some(name)) if is(option, "type") && args.len() == 4 => {
            let others = ["master", "replica", "slave", "pubsub"];
            normal = is(name, "normal");
            if !normal && !others.iter().any(|other| is(name, other)) {
                return Err(Error::client_type(name));
            }
        }
        (Some(option), Some(_)) if is(option, "id") => {
            let asked = args.from(3).map(number).collect::<Option<HashSet<u64>>>();
            ids = Some(asked.ok_or(Error::ClientId)?);
        }
        _ => return Err(Error::Syntax),
    }
    let is_asked = |peer: &Peer| ids.as_ref().is_none_or(|ids| ids.contains(&peer.id));
    let most = context.server.options.max_bulk;
    let mut lines = String::new();
    for peer in context.server.clients.all() {
        if normal && is_asked(&peer) {
            lines += &peer.line(name_of);
        }
        // Clients choose the names, so the list can be long.
        if lines.len() > most {
            return Err(Error::ReplyLength(most));
        }
    }
    context.out.text(&lines);
    Ok(())
}

/// Maximum length of a client's name, in bytes. It is kept as long as the connection.
const LONGEST_NAME: usize = 1024;

fn set_name(context: &mut Context<'_>, name: &[u8]) -> Result<(), Error> {
    let name = checked(name, Error::ClientName)?;
    context.session.peer.about().name = name;
    Ok(())
}

/// Stores the name or version of a client's library.
fn set_info(context: &mut Context<'_>, attribute: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut about = context.session.peer.about();
    let (field, name) = match attribute {
        _ if is(attribute, "lib-name") => (&mut about.library, "lib-name"),
        _ if is(attribute, "lib-ver") => (&mut about.library_version, "lib-ver"),
        _ => return Err(Error::client_option(attribute)),
    };
    *field = checked(value, Error::ClientField(name))?;
    context.out.ok();
    Ok(())
}

/// Copies a field of `CLIENT LIST`, unless it is too long or could look like another field.
fn checked(text: &[u8], error: Error) -> Result<Vec<u8>, Error> {
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(error);
    }
    if text.len() > LONGEST_NAME {
        return Err(Error::ClientNameLength(LONGEST_NAME));
    }
    Ok(text.into())
}
