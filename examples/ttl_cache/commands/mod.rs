//! What clients can ask for.
//!
//! | file | what is there |
//! |---|---|
//! | `strings` | keys and values |
//! | `expiry` | deadlines, and how they are written |
//! | `connection` | what concerns the connection alone, as PING and CLIENT |
//! | `server` | INFO, CONFIG and others that ask about the server |
//! | `error` | what is wrong with a command |

mod connection;
mod error;
mod expiry;
mod server;
mod strings;

use self::error::Error;
use crate::{Server, reply::Replies, resp::Args};

/// What the server knows of a client.
#[derive(Debug, Default)]
pub struct Session {
    id: u64,
    name: Vec<u8>,
    /// It said QUIT: nothing is read any more.
    pub quit: bool,
}

impl Session {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }
}

/// Where a command runs.
struct Context<'a> {
    server: &'a Server,
    session: &'a mut Session,
    out: &'a mut Replies,
}

struct Command {
    name: &'static str,
    /// The number of arguments, the name included; if negative, at least so many. (Redis's way to say it.)
    arity: isize,
    run: fn(&mut Context<'_>, Args<'_>) -> Result<(), Error>,
}

macro_rules! commands {
    ($($name:literal $arity:literal $run:path,)*) => {
        &[$(Command { name: $name, arity: $arity, run: $run },)*]
    };
}

/// Those that are asked for most stand first, for they are looked for one after another.
const COMMANDS: &[Command] = commands! {
    "get" 2 strings::get,
    "set" -3 strings::set,
    "expire" -3 expiry::expire,
    "pexpire" -3 expiry::pexpire,
    "ttl" 2 expiry::ttl,
    "pttl" 2 expiry::pttl,
    "del" -2 strings::del,
    "unlink" -2 strings::del,
    "exists" -2 strings::exists,
    "getex" -2 strings::getex,
    "expireat" -3 expiry::expireat,
    "pexpireat" -3 expiry::pexpireat,
    "persist" 2 expiry::persist,
    "ping" -1 connection::ping,
    "echo" 2 connection::echo,
    "quit" -1 connection::quit,
    "select" 2 connection::select,
    "hello" -1 connection::hello,
    "client" -2 connection::client,
    "dbsize" 1 server::dbsize,
    "flushall" -1 server::flush,
    "flushdb" -1 server::flush,
    "info" -1 server::info,
    "config" -2 server::config,
    "command" -1 server::command,
};

/// Runs a command, of which there is at least the name. It makes one reply.
pub fn run(server: &Server, session: &mut Session, args: Args<'_>, out: &mut Replies) {
    let mut context = Context {
        server,
        session,
        out,
    };
    if let Err(error) = find(args).and_then(|command| (command.run)(&mut context, args)) {
        context.out.error(&error);
    }
}

fn find(args: Args<'_>) -> Result<&'static Command, Error> {
    let command = COMMANDS.iter().find(|command| is(&args[0], command.name));
    let command = command.ok_or_else(|| Error::unknown(args))?;
    let len = args.len();
    match command.arity {
        arity if arity < 0 && len >= arity.unsigned_abs() => Ok(command),
        arity if arity.unsigned_abs() == len => Ok(command),
        _ => Err(Error::Arity(command.name)),
    }
}

/// Whether an argument is this word, in letters of either case.
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
