//! A network between a client and a server, on the loopback interface, that is slow or drops all.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

struct Network {
    server: u16,
    /// How much later each piece arrives.
    delay: Duration,
    /// Whether what clients send is dropped.
    drops_requests: AtomicBool,
    /// Whether what the server sends is dropped.
    drops_answers: AtomicBool,
    is_over: AtomicBool,
    /// Both ends of all connections.
    streams: Mutex<Vec<TcpStream>>,
}

impl Network {
    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all connections.
    fn end_connections(&self) {
        for stream in self.streams().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections. Later connections lose nothing.
    fn reset(&self) {
        self.end_connections();
        self.drop_nothing();
    }

    fn drop_nothing(&self) {
        self.drops_requests.store(false, Ordering::Relaxed);
        self.drops_answers.store(false, Ordering::Relaxed);
    }

    /// Connects a client to the server.
    fn accept(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let mut streams = self.streams();
        streams.push(client.try_clone()?);
        if self.drops_requests.load(Ordering::Relaxed) {
            // Leave the client without a server. It waits until its connection is ended.
            return Ok(());
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server))?;
        streams.push(server.try_clone()?);
        drop(streams);
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let (from, to) = (client.try_clone()?, server.try_clone()?);
        self.clone()
            .carry(from, to, |network| &network.drops_requests);
        self.clone()
            .carry(server, client, |network| &network.drops_answers);
        Ok(())
    }

    /// Starts a thread that carries pieces from one end to the other.
    fn carry(
        self: Arc<Self>,
        mut from: TcpStream,
        mut to: TcpStream,
        drops: fn(&Self) -> &AtomicBool,
    ) {
        thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                thread::sleep(self.delay);
                if drops(&self).load(Ordering::Relaxed) {
                    // Nothing arrives over this connection any more: `heal` ends it.
                    return;
                }
                if to.write_all(&piece[..length]).is_err() {
                    break;
                }
            }
            if !drops(&self).load(Ordering::Relaxed) {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            }
        });
    }
}

/// A port that leads to a server.
pub struct Proxy {
    network: Arc<Network>,
    port: u16,
}

impl Proxy {
    /// Makes a port that leads to port `server`. Each piece of data arrives later by `delay`.
    pub fn start(server: u16, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let network = Arc::new(Network {
            server,
            delay,
            drops_requests: AtomicBool::new(false),
            drops_answers: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepts = network.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepts.is_over.load(Ordering::Relaxed) {
                    break;
                }
                // If the server is down, end all connections, so that the clients notice. What is
                // to be dropped is still dropped when the server is back.
                if accepts.accept(client).is_err() {
                    accepts.end_connections();
                }
            }
        });
        Ok(Self { network, port })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Drops everything from now on. Neither side learns of it.
    pub fn cut(&self) {
        self.network.drops_requests.store(true, Ordering::Relaxed);
        self.drop_answers();
    }

    /// Drops what the server sends from now on. Neither side learns of it.
    pub fn drop_answers(&self) {
        self.network.drops_answers.store(true, Ordering::Relaxed);
    }

    /// Makes the network whole again. Connections that lost data stay silent, and neither side
    /// learns of it.
    #[allow(dead_code, reason = "only the tests use it")]
    pub fn restore(&self) {
        self.network.drop_nothing();
    }

    /// Makes the network whole again. Connections that lost data end.
    pub fn heal(&self) {
        self.network.reset();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.is_over.store(true, Ordering::Relaxed);
        self.network.reset();
        // Wake the accepting thread, so that it ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}
