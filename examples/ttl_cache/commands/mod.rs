//! The commands.
//!
//! | file | content |
//! |---|---|
//! | `strings` | commands about values |
//! | `keys` | commands about keys |
//! | `expiry` | commands about deadlines, and their formats |
//! | `connection` | commands about the connection, such as PING and CLIENT |
//! | `server` | INFO, CONFIG and others about the server |
//! | `error` | errors of commands |

mod connection;
pub mod error;
mod expiry;
mod keys;
mod server;
mod strings;

use std::sync::Arc;

use self::error::Error;
use crate::{Server, clients::Peer, reply::Replies, resp::Args};

/// The state of a connection that commands change.
#[derive(Debug)]
pub struct Session {
    peer: Arc<Peer>,
    /// Read nothing more: the client sent QUIT, or speaks HTTP.
    pub quit: bool,
    /// State of an incomplete command. It continues when the client has taken the reply so far and
    /// other tasks had a turn.
    pub resume: Option<Resume>,
}

/// Where a long command continues.
#[derive(Debug)]
pub enum Resume {
    /// At this argument of MGET.
    Mget(usize),
    Keys(keys::Listing),
}

impl Session {
    pub fn new(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            quit: false,
            resume: None,
        }
    }
}

/// The context of a command.
struct Context<'a> {
    server: &'a Server,
    session: &'a mut Session,
    out: &'a mut Replies,
}

struct Command {
    name: &'static str,
    /// Number of arguments including the name. A negative number is a minimum, as in redis's own
    /// table.
    arity: isize,
    run: fn(&mut Context<'_>, Args<'_>) -> Result<(), Error>,
}

macro_rules! commands {
    ($($name:literal $arity:literal $run:path,)*) => {
        &[$(Command { name: $name, arity: $arity, run: $run },)*]
    };
}

/// All commands. They are searched in order, so the most frequent come first.
const COMMANDS: &[Command] = commands! {
    "get" 2 strings::get,
    "set" -3 strings::set,
    "expire" -3 expiry::expire,
    "pexpire" -3 expiry::pexpire,
    "ttl" 2 expiry::ttl,
    "pttl" 2 expiry::pttl,
    "del" -2 keys::del,
    "unlink" -2 keys::del,
    "exists" -2 keys::exists,
    "setex" 4 strings::setex,
    "psetex" 4 strings::psetex,
    "mget" -2 strings::mget,
    "mset" -3 strings::mset,
    "incr" 2 strings::incr,
    "decr" 2 strings::decr,
    "incrby" 3 strings::incrby,
    "decrby" 3 strings::decrby,
    "setnx" 3 strings::setnx,
    "getset" 3 strings::getset,
    "getdel" 2 strings::getdel,
    "getex" -2 strings::getex,
    "append" 3 strings::append,
    "strlen" 2 strings::strlen,
    "expireat" -3 expiry::expireat,
    "pexpireat" -3 expiry::pexpireat,
    "expiretime" 2 expiry::expiretime,
    "pexpiretime" 2 expiry::pexpiretime,
    "persist" 2 expiry::persist,
    "type" 2 keys::type_of,
    "keys" 2 keys::keys,
    "scan" -2 keys::scan,
    "ping" -1 connection::ping,
    "echo" 2 connection::echo,
    "quit" -1 connection::quit,
    "select" 2 connection::select,
    "hello" -1 connection::hello,
    "auth" -2 connection::auth,
    "reset" 1 connection::reset,
    "client" -2 connection::client,
    "dbsize" 1 keys::dbsize,
    "flushall" -1 keys::flush,
    "flushdb" -1 keys::flush,
    "time" 1 server::time,
    "info" -1 server::info,
    "config" -2 server::config,
    "command" -1 server::command,
    "function" -2 server::function,
    "debug" -2 server::debug,
};

/// Runs a command with at least a name. Writes one reply, or a part of it: see [`Session::resume`].
pub fn run(server: &Server, session: &mut Session, args: Args<'_>, out: &mut Replies) {
    if is_http(&args[0]) {
        server.warn_of_http();
        session.quit = true;
        return;
    }
    let mut context = Context {
        server,
        session,
        out,
    };
    let done = find(args).and_then(|(index, command)| {
        context.session.peer.runs(index);
        (command.run)(&mut context, args)
    });
    if let Err(error) = done {
        context.out.error(&error);
    }
}

/// Returns whether this is a line of an HTTP request, by redis's rule.
///
/// A web page of any origin can make a browser send a `POST` request to this port. The lines of its
/// head are invalid commands, but the lines of its body would be executed. Every such request has
/// one of these lines before its body.
fn is_http(name: &[u8]) -> bool {
    is(name, "post") || is(name, "host:")
}

/// Returns the name of the command with this index.
fn name_of(index: usize) -> &'static str {
    COMMANDS.get(index).map_or("NULL", |command| command.name)
}

fn find(args: Args<'_>) -> Result<(usize, &'static Command), Error> {
    let mut commands = COMMANDS.iter().enumerate();
    let command = commands.find(|(_, command)| is(&args[0], command.name));
    let (index, command) = command.ok_or_else(|| Error::unknown(args))?;
    let len = args.len();
    match command.arity {
        arity if arity < 0 && len >= arity.unsigned_abs() => Ok((index, command)),
        arity if arity.unsigned_abs() == len => Ok((index, command)),
        _ => Err(Error::Arity(command.name)),
    }
}

/// Returns whether an argument is this word, ignoring case.
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
