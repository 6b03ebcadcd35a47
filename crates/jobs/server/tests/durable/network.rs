//! Nodes whose network drops all or is slow, and nodes whose clocks are wrong.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_jobs::{Attempt, Node, Time, node::Interrupt};

use crate::{
    server::Server,
    shared::{LEASE, SHORT, connect, skip, start, torture, with_server},
    support::{HOUR, PATIENCE, live, node, run, unbounded_channel, waiting},
};

#[path = "../../src/bin/torture/faketime.rs"]
mod faketime;
#[path = "../../src/bin/torture/proxy.rs"]
pub mod proxy;

use self::proxy::Proxy;

/// Runs a test on a server and a network that leads to it, or skips the test.
pub fn behind_a_proxy<S: Server>(test: impl AsyncFnOnce(S, Proxy)) {
    with_server(async |server: S| {
        let proxy = Proxy::start(server.port(), Duration::ZERO).unwrap();
        test(server, proxy).await;
    });
}

pub fn a_node_that_is_cut_off_loses_its_jobs_to_another<S: Server>() {
    behind_a_proxy(async |server: S, proxy| {
        let far = connect::<S>(proxy.port()).await;
        let (alone, mut ran_alone) = node(&far, |node| node.lease(LEASE), |_| Ok(()));
        let near = connect::<S>(server.port()).await;
        // On a slow machine the job may be over before the cut. Then try again.
        loop {
            near.schedule("job", 3 * LEASE, "").await.unwrap();
            while alone.stats().held == 0 && ran_alone.is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
            proxy.cut();
            if near.get("job").await.unwrap().is_some() {
                break;
            }
            proxy.heal();
            ran_alone.recv().await.unwrap();
        }
        let begun = alone.stats().begun;
        let (other, mut ran) = node(&near, |node| node.lease(LEASE), |_| Ok(()));
        assert_eq!(ran.recv().await.unwrap().key, "job");
        // The node that holds the job no longer has not begun it.
        assert_eq!(alone.stats().begun, begun);
        proxy.heal();
        assert!(other.stop(PATIENCE).await);
        near.schedule("later", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran_alone.recv().await.unwrap().key, "later");
        live(&near, 0).await;
        assert!(alone.stats().leases > 1);
        assert!(alone.stop(PATIENCE).await);
    });
}

pub fn a_handler_learns_that_its_lease_is_lost<S: Server>() {
    behind_a_proxy(async |server: S, proxy| {
        let far = connect::<S>(proxy.port()).await;
        let (sender, mut told) = unbounded_channel();
        let (began, mut begins) = unbounded_channel();
        let node = Node::builder(far)
            .lease(LEASE)
            .start(move |attempt: Attempt| {
                let sender = sender.clone();
                let _ = began.send(());
                async move {
                    let _ = sender.send(attempt.interrupted().await);
                    Ok(())
                }
            });
        let near = connect::<S>(server.port()).await;
        near.schedule("job", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        proxy.cut();
        assert_eq!(told.recv().await.unwrap(), Interrupt::LeaseLost);
        proxy.heal();
        // If the job runs again, that handler is told, too.
        assert!(node.stop(PATIENCE).await);
    });
}

pub fn an_end_whose_answer_is_lost_is_in_doubt<S: Server>() {
    behind_a_proxy(async |server: S, proxy| {
        let far = connect::<S>(proxy.port()).await;
        let (node, gate, mut begins, mut ends) = waiting(&far, |node| node, |_| Ok(()));
        let near = connect::<S>(server.port()).await;
        // The first end takes more than one answer, as its statement is prepared.
        near.schedule("first", Duration::ZERO, "").await.unwrap();
        gate.add_permits(1);
        assert_eq!(ends.recv().await.unwrap().1, Some(true));
        begins.recv().await.unwrap();
        near.schedule("job", Duration::ZERO, "").await.unwrap();
        begins.recv().await.unwrap();
        proxy.drop_answers();
        gate.add_permits(1);
        // The store has taken the end, and the node has not heard of it.
        live(&near, 0).await;
        proxy.heal();
        assert_eq!(ends.recv().await.unwrap().1, None);
        assert!(node.stop(PATIENCE).await);
    });
}

pub fn a_job_whose_acknowledgement_is_lost_is_not_late<S: Server>() {
    behind_a_proxy(async |server: S, proxy| {
        let near = connect::<S>(server.port()).await;
        let (node, mut ran) = node(&near, |node| node.window(HOUR), |_| Ok(()));
        let far = connect::<S>(proxy.port()).await;
        // The first request takes more than one answer, as its statement is prepared.
        far.schedule("first", 2 * HOUR, "").await.unwrap();
        // Let the node look, and not again by itself.
        sleep(LEASE).await;
        proxy.drop_answers();
        let asks = far.clone();
        let asking = tourbillon::spawn(async move {
            let _ = asks.schedule("job", LEASE, "").await;
        });
        assert_eq!(ran.recv().await.unwrap().key, "job");
        proxy.heal();
        asking.await.unwrap();
        near.cancel("first").await.unwrap();
        live(&near, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

pub fn a_node_notices_a_connection_that_died_silently<S: Server>() {
    behind_a_proxy(async |server: S, proxy| {
        let far = connect::<S>(proxy.port()).await;
        let (node, mut ran) = node(
            &far,
            |node| node.window(HOUR).lease(Duration::from_secs(60)),
            |_| Ok(()),
        );
        let near = connect::<S>(server.port()).await;
        // Let the node look, and not again by itself.
        sleep(2 * LEASE).await;
        proxy.drop_answers();
        // The message that the node waits for is lost, and so are the answers to its connection.
        near.schedule("job", 2 * LEASE, "").await.unwrap();
        sleep(3 * LEASE).await;
        proxy.restore();
        assert!(ran.is_empty());
        assert_eq!(ran.recv().await.unwrap().key, "job");
        live(&near, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// What was given up must not be sent later. So the connections end with a reset, which discards
/// what the system has not sent.
pub fn a_store_that_is_dropped_sends_nothing_more<S: Server>() {
    let Some(server) = start::<S>() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = server.port();
    let (sender, mut ended) = unbounded_channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from, &mut back));
            let sender = sender.clone();
            thread::spawn(move || {
                let end = io::copy(&mut client, &mut server).map_err(|error| error.kind());
                let _ = sender.send(end);
            });
        }
    });
    run(async {
        let queue = connect::<S>(port).await;
        queue.count().await.unwrap();
        drop(queue);
        // A connection that is made at this moment may end without a reset.
        while ended.recv().await.unwrap() != Err(io::ErrorKind::ConnectionReset) {}
    });
}

pub fn a_slow_server_makes_nothing_early<S: Server>() {
    with_server(async |server: S| {
        let proxy = Proxy::start(server.port(), Duration::from_millis(60)).unwrap();
        let queue = connect::<S>(proxy.port()).await;
        let (node, mut ran) = node(
            &queue,
            |node| node.lease(Duration::from_secs(5)),
            // The server's clock is this machine's.
            |attempt| {
                assert!(Time::wall() >= attempt.at);
                Ok(())
            },
        );
        for number in 0..20 {
            let at = Duration::from_millis(100 * number);
            queue
                .schedule(format!("job-{number}"), at, "")
                .await
                .unwrap();
        }
        for _ in 0..20 {
            assert_eq!(ran.recv().await.unwrap().number, 1);
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

pub fn partitions_lose_nothing<S: Server>() {
    torture::<S>(&[&SHORT[..], &["--kill", "2300ms", "--cut", "700ms"]].concat());
}

pub fn a_slow_store_loses_nothing<S: Server>() {
    torture::<S>(&[&SHORT[..], &["--kill", "1300ms", "--delay", "30ms"]].concat());
}

pub fn wrong_clocks_of_nodes_make_nothing_early<S: Server>() {
    if let Err(why) = faketime::find() {
        return skip(&why);
    }
    torture::<S>(&[&SHORT[..], &["--kill", "1s", "--skew", "5s"]].concat());
}
