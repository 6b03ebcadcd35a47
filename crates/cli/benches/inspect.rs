//! The cost of the live page for the runtime that it shows.
//!
//! It runs storms in turns: without an inspector; with an inspector without clients; with one
//! client that reads events while `/metrics` is scraped each second; and with 1,000 clients that
//! read events. For each it prints the CPU time of the workers and of the whole process, and the
//! timers' lateness, with the ratio of the medians to those without an inspector. The clients run
//! at low priority, because clients on another machine would take no CPU time.
//!
//! Run `cargo bench -p tourbillon-cli`. A number after `--` sets the rounds (5).

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use serde_json::Value;
use tourbillon::{Runtime, net::TcpStream, runtime::Builder, time::sleep};
use tourbillon_support::{
    bench::{median, turns},
    clients::storm::page_address,
    disturbance::Meter,
};

/// 50,000 timers per second for 4 s. The page is open the whole time.
const STORM: [&str; 9] = [
    "storm", "--timers", "200k", "--spread", "4s", "--lead", "1s", "--format", "json",
];
const CLIENTS: usize = 1000;

/// The clients of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Viewers {
    /// There is no inspector.
    None,
    /// There is an inspector without clients.
    Nobody,
    /// One client reads events, and one scrapes each second.
    Page,
    /// [`CLIENTS`] clients read events.
    Many,
}

impl Viewers {
    const ALL: [Self; 4] = [Self::None, Self::Nobody, Self::Page, Self::Many];

    fn name(self) -> &'static str {
        match self {
            Self::None => "no inspector",
            Self::Nobody => "nobody asks",
            Self::Page => "one page, scraped",
            Self::Many => "1,000 clients",
        }
    }
}

/// A figure of a storm's report: its name, and a function that reads it.
type Figure = (&'static str, fn(&Value) -> f64);

const FIGURES: [Figure; 5] = [
    ("CPU of workers s", |report| {
        number(&report["worker_cpu_seconds"])
    }),
    ("CPU of all s", |report| number(&report["cpu_seconds"])),
    ("p50 us", |report| number(&report["lateness_us"]["p50"])),
    ("p99 us", |report| number(&report["lateness_us"]["p99"])),
    ("p99.9 us", |report| number(&report["lateness_us"]["p999"])),
];

fn number(value: &Value) -> f64 {
    value.as_f64().expect("it is a number")
}

/// The clients, on a thread with low priority.
struct Clients {
    runtime: Runtime,
}

impl Clients {
    fn new() -> Self {
        let runtime = Builder::new()
            .worker_threads(1)
            .pin(false)
            .on_thread_start(|| {
                // SAFETY: no pointers. (On Linux this affects only the calling thread.)
                unsafe { libc::nice(19) };
            })
            .build()
            .expect("there are threads");
        Self { runtime }
    }

    /// Starts the clients and counts their events. Some events arrive after the end of the storm.
    fn start(&self, addr: SocketAddr, viewers: Viewers, events: &Arc<AtomicUsize>) {
        let count = match viewers {
            Viewers::None | Viewers::Nobody => 0,
            Viewers::Page => 1,
            Viewers::Many => CLIENTS,
        };
        for _ in 0..count {
            let events = events.clone();
            // Ends with the storm, by the end of the stream or an error.
            let listen = async move { listen(addr, &events).await };
            drop(self.runtime.spawn(listen));
        }
        if viewers == Viewers::Page {
            drop(self.runtime.spawn(async move {
                while ask(addr, "/metrics", |_| {}).await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            }));
        }
    }
}

async fn listen(addr: SocketAddr, events: &AtomicUsize) -> std::io::Result<()> {
    let end = b"\n\n";
    ask(addr, "/events", |part| {
        events.fetch_add(part.windows(2).filter(|two| two == end).count(), Relaxed);
    })
    .await
}

/// Requests a path and reads the response to its end.
async fn ask(addr: SocketAddr, path: &str, mut part: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => part(&buffer[..n]),
        }
    }
}

/// Runs a storm with clients, and returns its report.
fn storm(viewers: Viewers, clients: &Clients, events: &Arc<AtomicUsize>) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    command.args(STORM).stdout(Stdio::piped());
    if viewers != Viewers::None {
        command
            .args(["--inspect", "127.0.0.1:0"])
            .stderr(Stdio::piped());
    }
    let mut child = command.spawn().expect("it was built");
    if viewers != Viewers::None {
        clients.start(address(&mut child), viewers, events);
    }
    // The report comes at the end of the storm.
    let mut report = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    stdout.read_to_string(&mut report).expect("it is text");
    let status = child.wait().expect("it is our child");
    assert!(status.success(), "{report}");
    serde_json::from_str(&report).expect("it is JSON")
}

fn address(child: &mut Child) -> SocketAddr {
    let mut line = String::new();
    let stderr = child.stderr.take().expect("piped");
    BufReader::new(stderr)
        .read_line(&mut line)
        .expect("it is text");
    page_address(&line)
}

fn main() {
    let rounds = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(5_usize);
    let clients = Clients::new();
    let events: [Arc<AtomicUsize>; 4] = Default::default();
    let meter = Meter::start();
    let reports = turns(rounds.max(1), events.len(), |which| {
        storm(Viewers::ALL[which], &clients, &events[which])
    });
    let disturbance = meter.read();
    print!("{:<18}", "medians, and ratio");
    FIGURES.iter().for_each(|(name, _)| print!("{name:>24}"));
    println!("{:>14}", "events a run");
    for (which, reports_of) in reports.iter().enumerate() {
        print!("{:<18}", Viewers::ALL[which].name());
        for (_, figure) in FIGURES {
            let of = |reports: &[Value]| median(reports.iter().map(figure));
            let (here, without) = (of(reports_of), of(&reports[0]));
            print!("{here:>16.2} ({:.2})", here / without);
        }
        println!("{:>14}", events[which].load(Relaxed) / rounds.max(1));
    }
    println!("the machine: {disturbance}");
}
