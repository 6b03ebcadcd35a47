//! A connection to a server that can be cut, as a network cable can. Then no byte passes, and
//! neither end is told.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// It lives as long as the test's process.
pub struct Cable {
    pub addr: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Cable {
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = is_cut.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The server may have ended.
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, server), back] {
                    let cut = cut.clone();
                    thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        Self { addr, is_cut }
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// Connects the ends again. What was sent meanwhile arrives now.
    pub fn mend(&self) {
        self.is_cut.store(false, Relaxed);
    }
}

/// Passes bytes on, up to the end of the stream or an error.
fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) -> io::Result<()> {
    let mut buf = vec![0; 64 * 1024];
    loop {
        let n = from.read(&mut buf).unwrap_or(0);
        while is_cut.load(Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if n == 0 {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&buf[..n])?;
    }
}
