//! Several hosts, and the network between them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant, SystemTime},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream, UdpSocket},
    task::spawn_blocking,
    time::{sleep, timeout},
    timer::Timer,
};
use tourbillon_sim::{
    Network, Simulation, assert_sometimes, crash, host_address, partition, partition_one_way,
    random, repair, repair_all, reset, restart, set_clock,
};

/// Sends back what comes, until the connection ends.
pub(crate) async fn send_back(mut stream: TcpStream) {
    let mut buffer = [0; 1_000];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}

/// A server that sends back what it gets.
pub(crate) async fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tourbillon::spawn(send_back(stream));
    }
}

/// Connects, and tries again while the server does not listen yet.
pub(crate) async fn connect(name: &str, port: u16) -> TcpStream {
    loop {
        match TcpStream::connect((name, port)).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut back = vec![0; bytes.len()];
    stream.write_all(bytes).await?;
    stream.read_exact(&mut back).await?;
    assert_eq!(back, bytes);
    Ok(())
}

#[tourbillon_sim::test(seeds = 50)]
fn a_server_answers_two_clients(sim: &mut Simulation) {
    let mut network = Network::new();
    network.loss(0.05).window(3_000);
    sim.network(network).host("server", echo);
    for name in ["a", "b"] {
        sim.client(name, || async {
            let mut stream = connect("server", 7).await;
            assert_eq!(stream.peer_addr()?.ip(), host_address("server"));
            for _ in 0..5 {
                let bytes = vec![random() as u8; random() as usize % 10_000];
                let (mut read, mut write) = stream.split();
                let mut back = vec![0; bytes.len()];
                let (sent, came) =
                    futures_lite::future::zip(write.write_all(&bytes), read.read_exact(&mut back))
                        .await;
                sent?;
                came?;
                assert_eq!(back, bytes);
            }
            stream.close().await?;
            assert_eq!(
                stream.read(&mut [0; 9]).await?,
                0,
                "the server has ended it"
            );
            io::Result::Ok(())
        });
    }
}

#[tourbillon_sim::test(seeds = 30)]
fn a_writer_waits_for_its_reader(sim: &mut Simulation) {
    let mut network = Network::new();
    network.window(1_000);
    sim.network(network);
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:9").await?;
        let (mut stream, _) = listener.accept().await?;
        sleep(Duration::from_secs(10)).await;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        assert_eq!(all.len(), 5_000);
        stream.write_all(b"done").await
    });
    sim.client("client", || async {
        let mut stream = connect("server", 9).await;
        let begin = Instant::now();
        stream.write_all(&[1; 5_000]).await?;
        assert!(begin.elapsed() > Duration::from_secs(9), "it had no room");
        stream.close().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert_eq!(answer, "done");
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn a_partition_delays_and_a_reset_ends(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        let mut stream = connect("server", 7).await;
        exchange(&mut stream, b"one").await?;

        partition("client", "server");
        let begin = Instant::now();
        tourbillon::spawn(async {
            sleep(Duration::from_secs(30)).await;
            repair("client", "server");
        });
        exchange(&mut stream, b"two").await?;
        assert!(begin.elapsed() >= Duration::from_secs(30));

        // The request arrives, and the answer does not.
        partition_one_way("server", "client");
        let limit = Duration::from_secs(5);
        let lost = timeout(limit, exchange(&mut stream, b"three")).await;
        assert!(lost.is_err(), "{lost:?}");
        // A connect that nobody answers ends by itself.
        let begin = Instant::now();
        let error = TcpStream::connect(("server", 7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begin.elapsed() > Duration::from_secs(100));
        repair_all();

        let mut stream = connect("server", 7).await;
        exchange(&mut stream, b"four").await?;
        reset("client", "server");
        let error = exchange(&mut stream, b"five").await.unwrap_err();
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "{error}");
        let refused = TcpStream::connect(("server", 8)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn the_network_resets_connections(sim: &mut Simulation) {
    let mut network = Network::new();
    network.resets(0.1);
    sim.network(network).host("server", echo);
    sim.client("client", || async {
        let mut resets = 0;
        for _ in 0..5 {
            let mut stream = connect("server", 7).await;
            if let Err(error) = exchange(&mut stream, b"number").await {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                resets += 1;
            }
        }
        assert_sometimes!(resets == 0, "no connection is reset");
        assert_sometimes!(resets > 1, "some connections are reset");
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_host_that_crashes_leaves_half_open_peers(sim: &mut Simulation) {
    let starts = Arc::new(AtomicU64::new(0));
    sim.host("server", {
        let starts = starts.clone();
        move || {
            starts.fetch_add(1, SeqCst);
            echo()
        }
    });
    sim.client("client", move || {
        let starts = starts.clone();
        async move {
            let mut stream = connect("server", 7).await;
            exchange(&mut stream, b"one").await?;
            crash("server");
            // Nothing says that the peer is gone.
            let waits = timeout(Duration::from_secs(5), stream.read(&mut [0; 9])).await;
            assert!(waits.is_err());
            restart("server");
            // The new server knows nothing of the connection.
            let error = exchange(&mut stream, b"two").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            let mut stream = connect("server", 7).await;
            exchange(&mut stream, b"three").await?;
            assert_eq!(starts.load(SeqCst), 2);
            io::Result::Ok(())
        }
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn a_host_may_crash_at_any_moment(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        for _ in 0..3 {
            let mut stream = connect("server", 7).await;
            let fault = tourbillon::spawn(async {
                sleep(Duration::from_nanos(random() % 3_000_000)).await;
                crash("server");
                sleep(Duration::from_nanos(random() % 3_000_000)).await;
                restart("server");
            });
            let limit = Duration::from_millis(100);
            let mut answered = 0;
            while let Ok(Ok(())) = timeout(limit, exchange(&mut stream, b"number")).await {
                answered += 1;
            }
            assert_sometimes!(answered == 0, "the crash comes before the first answer");
            assert_sometimes!(answered > 1, "the crash comes later");
            fault.await.unwrap();
        }
    });
}

#[tourbillon_sim::test(seeds = 40)]
fn datagrams_are_lost_and_overtake(sim: &mut Simulation) {
    let mut network = Network::new();
    network
        .loss(0.2)
        .delay(Duration::from_millis(1)..Duration::from_millis(50));
    sim.network(network);
    sim.host("server", || async {
        let socket = UdpSocket::bind("0.0.0.0:53").await?;
        let mut buffer = [0; 100];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).await?;
            socket.send_to(&buffer[..count], from).await?;
        }
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(("server", 53)).await?;
        // The server may not listen yet.
        sleep(Duration::from_secs(1)).await;
        for number in 0..50_u8 {
            socket.send(&[number]).await?;
        }
        let (mut came, mut buffer) = (Vec::new(), [0; 100]);
        while let Ok(count) = timeout(Duration::from_secs(1), socket.recv(&mut buffer)).await {
            assert_eq!(count?, 1);
            came.push(buffer[0]);
        }
        assert!((5..50).contains(&came.len()), "{came:?}");
        assert!(!came.is_sorted(), "{came:?}");
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn sockets_of_the_standard_library_are_simulated(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        drop(connect("server", 7).await);
        let talk = spawn_blocking(|| {
            let addrs: Vec<SocketAddr> = ("server", 7).to_socket_addrs()?.collect();
            let mut stream = std::net::TcpStream::connect(&addrs[..])?;
            stream.write_all(b"hello")?;
            let mut back = [0; 5];
            stream.read_exact(&mut back)?;
            assert_eq!(&back, b"hello");
            io::Result::Ok(())
        });
        talk.await.unwrap()
    });
}

#[tourbillon_sim::test(seeds = 20)]
fn each_host_has_a_wall_clock(sim: &mut Simulation) {
    sim.client("a", || async {
        // The other host has read its clock by then.
        sleep(Duration::from_secs(1)).await;
        let (wall, begin) = (SystemTime::now(), Instant::now());
        set_clock("a", wall - Duration::from_secs(3_600));
        set_clock("b", wall + Duration::from_secs(3_600));
        assert!(SystemTime::now() < wall - Duration::from_secs(3_599));
        assert!(begin.elapsed() < Duration::from_secs(1));
    });
    sim.client("b", || async {
        let wall = SystemTime::now();
        while wall.elapsed().unwrap() < Duration::from_secs(3_600) {
            sleep(Duration::from_millis(100)).await;
        }
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_repair_keeps_the_order_of_a_stream(sim: &mut Simulation) {
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").await?;
        let (mut stream, _) = listener.accept().await?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        assert_eq!(all, (0..100).collect::<Vec<u8>>());
        stream.write_all(b"all").await
    });
    sim.client("client", || async {
        let mut stream = connect("server", 7).await;
        for number in 0..100 {
            match random() % 8 {
                0 => partition_one_way("client", "server"),
                1 | 2 => repair("client", "server"),
                _ => sleep(Duration::from_nanos(random() % 500_000)).await,
            }
            stream.write_all(&[number]).await?;
        }
        repair_all();
        stream.close().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert_eq!(answer, "all");
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn a_connect_that_is_dropped_leaves_nobody_waiting(sim: &mut Simulation) {
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").await?;
        loop {
            // One after the other: a connection whose client is gone must end.
            let (stream, _) = listener.accept().await?;
            send_back(stream).await;
        }
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.client("client", || async {
        drop(connect("server", 7).await);
        for _ in 0..5 {
            let limit = Duration::from_nanos(random() % 2_000_000);
            let connected = timeout(limit, TcpStream::connect(("server", 7))).await;
            assert_sometimes!(connected.is_err(), "the connect is dropped");
        }
        let mut stream = connect("server", 7).await;
        exchange(&mut stream, b"number").await
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_writer_to_a_host_that_has_crashed_waits(sim: &mut Simulation) {
    let mut network = Network::new();
    network.window(1_000);
    sim.network(network);
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").await?;
        loop {
            let (stream, _) = listener.accept().await?;
            // It reads nothing.
            tourbillon::spawn(async move {
                sleep(Duration::from_secs(3_000)).await;
                drop(stream);
            });
        }
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let mut stream = connect("server", 7).await;
        if random() % 2 == 0 {
            // The window is full before the crash, so nothing is under way.
            let full = timeout(Duration::from_secs(1), stream.write_all(&[1; 2_000])).await;
            assert!(full.is_err());
        }
        crash("server");
        let full = timeout(Duration::from_secs(1), stream.write_all(&[2; 2_000])).await;
        assert!(full.is_err(), "the window is full: {full:?}");
        restart("server");
        let error = stream.write_all(&[3; 2_000]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn an_answer_is_read_before_the_reset_behind_it(sim: &mut Simulation) {
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.read_exact(&mut [0; 1]).await?;
            sleep(Duration::from_millis(5)).await;
            stream.write_all(b"too long").await?;
            // It has not read the rest of the request, so this resets the connection.
            drop(stream);
        }
        #[allow(unreachable_code, reason = "the type of the loop's errors")]
        io::Result::Ok(())
    });
    sim.client("client", || async {
        let mut stream = connect("server", 7).await;
        stream.write_all(&[1; 100]).await?;
        sleep(Duration::from_millis(50)).await;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"too long");
        let error = stream.read(&mut answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn a_listener_on_the_loopback_is_for_its_own_host(sim: &mut Simulation) {
    sim.client("server", || async {
        let listener = TcpListener::bind("127.0.0.1:7").await?;
        let mut own = TcpStream::connect("127.0.0.1:7").await?;
        let (mut stream, _) = listener.accept().await?;
        own.write_all(b"own").await?;
        stream.read_exact(&mut [0; 3]).await?;
        sleep(Duration::from_secs(1)).await;
        io::Result::Ok(())
    });
    sim.client("other", || async {
        sleep(Duration::from_millis(100)).await;
        let error = TcpStream::connect(("server", 7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn a_read_of_the_standard_library_has_a_time_limit(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        drop(connect("server", 7).await);
        let wait = spawn_blocking(|| {
            let addrs: Vec<SocketAddr> = ("server", 7).to_socket_addrs()?.collect();
            let mut stream = std::net::TcpStream::connect(&addrs[..])?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            let begin = Instant::now();
            let error = stream.read(&mut [0; 9]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(begin.elapsed() >= Duration::from_secs(2));
            io::Result::Ok(())
        });
        wait.await.unwrap()
    });
}

#[tourbillon_sim::test(seeds = 20)]
fn timers_follow_a_wall_clock_that_is_set_far_back(sim: &mut Simulation) {
    sim.client("a", || async {
        let at = SystemTime::now() + Duration::from_secs(10);
        let fired = Arc::new(AtomicU64::new(0));
        let count = fired.clone();
        let _timer = Timer::at_wall(at).start(move || {
            count.fetch_add(1, SeqCst);
        });
        set_clock("a", SystemTime::UNIX_EPOCH);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(fired.load(SeqCst), 0);
        set_clock("a", at);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(fired.load(SeqCst), 1);
    });
}

/// The number of the process, which tells a program that what an earlier one made is not its own.
#[tourbillon_sim::test(seeds = 20)]
fn each_life_of_a_host_is_a_process(sim: &mut Simulation) {
    let known = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let of_host = known.clone();
    sim.host("a", move || {
        let is_new = of_host.lock().unwrap().insert(std::process::id());
        assert!(is_new, "two processes have one number");
        async {
            let here = std::process::id();
            let there = spawn_blocking(std::process::id).await.unwrap();
            assert_eq!(here, there, "two threads are of one process");
            std::future::pending::<()>().await;
        }
    });
    sim.client("b", move || {
        let known = known.clone();
        async move {
            sleep(Duration::from_secs(1)).await;
            crash("a");
            restart("a");
            sleep(Duration::from_secs(1)).await;
            known.lock().unwrap().insert(std::process::id());
            assert_eq!(known.lock().unwrap().len(), 3);
        }
    });
}
