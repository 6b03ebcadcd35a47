//! What goes wrong on one host alone: its clocks, its cores, its descriptors.

use std::{
    fs::{self, File},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{net::TcpListener, time::sleep};
use tourbillon_sim::{
    Disk, Simulation, assert_always, assert_sometimes, elapsed, pause, set_descriptors, take_core,
};

use crate::network::{connect, echo, exchange};

const SECOND: Duration = Duration::from_secs(1);

#[tourbillon_sim::test(seeds = 30)]
fn clocks_differ_and_drift(sim: &mut Simulation) {
    sim.clock_skew(SECOND).clock_drift(100_000);
    let walls = Arc::new(Mutex::new(Vec::new()));
    for name in ["a", "b"] {
        let walls = walls.clone();
        sim.client(name, move || {
            let walls = walls.clone();
            async move {
                walls.lock().unwrap().push(SystemTime::now());
                let (own, true_time) = (Instant::now(), elapsed());
                sleep(100 * SECOND).await;
                thread::sleep(100 * SECOND);
                let (own, true_time) = (own.elapsed(), elapsed() - true_time);
                // A host sees its own clock, by which a wait is as long as asked for.
                assert!(own >= 200 * SECOND && own < 201 * SECOND, "{own:?}");
                let rate = own.as_secs_f64() / true_time.as_secs_f64();
                assert!((0.899..1.101).contains(&rate), "{rate}");
                assert_sometimes!(rate > 1.05, "a clock is fast");
                assert_sometimes!(rate < 0.95, "a clock is slow");
                let walls = walls.lock().unwrap();
                if let [one, other] = walls[..] {
                    let difference = one.duration_since(other).unwrap_or_else(|it| it.duration());
                    assert!(difference < 3 * SECOND, "{difference:?}");
                    assert_sometimes!(difference > SECOND, "two wall clocks differ");
                }
            }
        });
    }
}

#[tourbillon_sim::test(seeds = 30)]
fn a_paused_host_answers_later(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        let mut server = connect("server", 7).await;
        exchange(&mut server, b"one").await?;
        let begin = Instant::now();
        pause("server", 10 * SECOND);
        exchange(&mut server, b"two").await?;
        assert!(begin.elapsed() >= 10 * SECOND, "{:?}", begin.elapsed());
        exchange(&mut server, b"three").await?;
        assert!(begin.elapsed() < 11 * SECOND, "{:?}", begin.elapsed());
        // All threads of this host stand still.
        let other = thread::spawn(|| {
            let mut gaps = 0;
            for _ in 0..1_000 {
                let begin = Instant::now();
                thread::sleep(Duration::from_millis(1));
                gaps += u64::from(begin.elapsed() >= SECOND);
            }
            gaps
        });
        sleep(Duration::from_millis(10)).await;
        let begin = Instant::now();
        pause("client", 2 * SECOND);
        assert!(begin.elapsed() >= 2 * SECOND);
        assert_eq!(other.join().unwrap(), 1);
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn one_thread_loses_its_core(sim: &mut Simulation) {
    sim.client("host", || async {
        let gaps = Arc::new(AtomicU64::new(0));
        let threads = [(); 3].map(|()| {
            let gaps = gaps.clone();
            thread::spawn(move || {
                for _ in 0..200 {
                    let begin = Instant::now();
                    thread::sleep(Duration::from_millis(1));
                    gaps.fetch_add(u64::from(begin.elapsed() >= SECOND), SeqCst);
                }
            })
        });
        take_core("host", 2 * SECOND);
        threads.into_iter().for_each(|it| it.join().unwrap());
        let gaps = gaps.load(SeqCst);
        assert_always!(gaps <= 1, "{gaps} threads lost their cores");
        assert_sometimes!(gaps == 1, "one of these threads loses its core");
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn a_host_has_no_more_descriptors(sim: &mut Simulation) {
    let is_emfile = |error: io::Error| error.raw_os_error() == Some(libc::EMFILE);
    sim.disk("/data", Disk::new());
    sim.host("server", move || async move {
        let listener = TcpListener::bind("0.0.0.0:7").await?;
        set_descriptors("server", 0);
        let refused = listener.accept().await.map(drop);
        assert!(is_emfile(refused.unwrap_err()));
        assert!(is_emfile(File::create("/data/new").unwrap_err()));
        assert!(!fs::exists("/data/new")?, "the call made no file");
        assert!(is_emfile(
            std::net::UdpSocket::bind("0.0.0.0:0").unwrap_err()
        ));
        set_descriptors("server", usize::MAX);
        File::create("/data/new")?;
        // The connection is still there.
        let (stream, _) = listener.accept().await?;
        crate::network::send_back(stream).await;
        Ok::<_, io::Error>(())
    });
    sim.client("client", || async {
        exchange(&mut connect("server", 7).await, b"one").await
    });
}

#[test]
fn a_runtime_counts_its_descriptors() {
    let run = |workers, most| {
        let mut sim = Simulation::new(0);
        sim.workers(workers).descriptors(most);
        sim.client("host", || async {
            sleep(SECOND).await;
            tourbillon::spawn(sleep(SECOND)).await.unwrap();
        });
        sim.run().is_ok()
    };
    for workers in [1, 3] {
        let need = 4 * workers + 2;
        assert!(run(workers, need) && !run(workers, need - 1));
    }
}
