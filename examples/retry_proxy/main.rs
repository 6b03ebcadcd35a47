//! A TCP proxy that retries its upstreams with backoff until a deadline. See the README in this
//! directory.

mod args;
mod relay;
mod retry;
mod stats;

use std::{
    error::Error,
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use tourbillon::{
    Runtime,
    net::{TcpListener, TcpStream},
};
use tourbillon_examples::{
    accept,
    arguments::arguments,
    room,
    say::{self, complain, say},
    server::Stop,
};

use self::{args::Args, relay::End, retry::Policy, stats::Stats};

/// State that all connections share.
struct Proxy {
    upstreams: Vec<SocketAddr>,
    /// Number of clients so far, which decides the first upstream of the next client.
    turn: AtomicUsize,
    policy: Policy,
    connect_timeout: Duration,
    idle: Duration,
    /// Whether to print each failed attempt.
    verbose: bool,
    stats: Stats,
}

impl Proxy {
    /// Makes one connection attempt for a client. `first` is the client's first upstream, `before`
    /// is the number of attempts made so far.
    async fn connect(&self, first: usize, before: u32) -> io::Result<TcpStream> {
        let len = self.upstreams.len();
        let addr = self.upstreams[(first % len + before as usize % len) % len];
        self.stats.tries.fetch_add(1, Relaxed);
        let connected = TcpStream::connect_timeout(addr, self.connect_timeout).await;
        if let (Err(error), true) = (&connected, self.verbose) {
            complain(format_args!("try {} at {addr}: {error}", before + 1));
        }
        connected
    }

    /// Serves one client.
    async fn serve(self: Arc<Self>, client: TcpStream) {
        let stats = &self.stats;
        stats.clients.fetch_add(1, Relaxed);
        // Fix the order for this client. So each of its rounds tries all upstreams, whatever other
        // clients do.
        let first = self.turn.fetch_add(1, Relaxed);
        let connect = |before| self.connect(first, before);
        let upstream = match self.policy.run(&mut Rng::new(), connect).await {
            Ok(upstream) => upstream,
            Err(gave_up) => {
                stats.gave_up.fetch_add(1, Relaxed);
                let why = gave_up.last.map_or_else(
                    || "none of them has ended".to_owned(),
                    |error| error.to_string(),
                );
                complain(format_args!("gave up after {} tries: {why}", gave_up.tries));
                return;
            }
        };
        stats.connected.fetch_add(1, Relaxed);
        // Forward small writes without delay.
        let _ = client.set_nodelay(true);
        let _ = upstream.set_nodelay(true);
        let bytes = (&stats.bytes_up, &stats.bytes_down);
        let count = match relay::relay(client, upstream, self.idle, bytes).await {
            End::Closed => &stats.closed,
            End::Idle => &stats.idle,
            End::Reset => &stats.reset,
        };
        count.fetch_add(1, Relaxed);
    }
}

fn main() -> ExitCode {
    say::end("retry_proxy", run(&arguments()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    // Each client needs two descriptors. Fail now rather than under load.
    let max = room::room_for(args.max_connections, 2)?;
    let upstreams: Vec<_> = args
        .upstream
        .iter()
        .flat_map(|addrs| addrs.iter())
        .copied()
        .collect();
    let proxy = Arc::new(Proxy {
        policy: args.policy(upstreams.len()),
        upstreams,
        turn: AtomicUsize::new(0),
        connect_timeout: args.connect_timeout,
        idle: args.idle,
        verbose: args.verbose,
        stats: Stats::default(),
    });

    let runtime = Runtime::new()?;
    let left = runtime.block_on(async {
        // Listen to signals before the address is printed: a caller may send one right after it.
        let stop = Stop::new()?;
        let listener = TcpListener::bind(&*args.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
        say(format_args!("listening on {}", listener.local_addr()?));
        let serve = |client| proxy.clone().serve(client);
        let left = accept::accept(listener, max, stop, args.drain, serve).await?;
        Ok::<_, Box<dyn Error>>(left)
    })?;
    drop(runtime);
    say(format_args!("{}, cut off: {left}", proxy.stats));
    Ok(())
}
