//! Channels, signals and tasks.

use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    runtime::LocalRuntime,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::{coop, spawn_local, yield_now},
};
use tourbillon_support::dropped::in_each_way;

use crate::{PATIENCE, leaves_nothing, nothing};

#[test]
fn channels() {
    leaves_nothing("tasks::channels", async || {
        for wait in 0..5 {
            in_each_way(async |way| {
                let (sender, mut receiver) = mpsc::channel(1);
                sender.send(1).await.unwrap();
                let other = sender.clone();
                let event = async || assert_eq!(receiver.recv().await, Some(1));
                let is_ready = match wait {
                    0 => way
                        .run(sender.send(2), event)
                        .await
                        .map(Result::unwrap)
                        .is_some(),
                    1 => {
                        let sent = way.run(sender.send_timeout(2, PATIENCE), event).await;
                        sent.map(Result::unwrap).is_some()
                    }
                    2 => {
                        let permit = way.run(sender.reserve(), event).await;
                        permit.map(|permit| permit.unwrap().send(2)).is_some()
                    }
                    3 => {
                        let permits = way.run(sender.reserve_many(1), event).await;
                        let send = |permit: mpsc::Permit<'_, i32>| permit.send(2);
                        permits
                            .map(|permits| permits.unwrap().for_each(send))
                            .is_some()
                    }
                    _ => {
                        let permit = way.run(other.clone().reserve_owned(), event).await;
                        permit.map(|permit| drop(permit.unwrap().send(2))).is_some()
                    }
                };
                // Without a value there is room, and with one there is none.
                assert_eq!(other.try_send(3).is_ok(), !is_ready);
                let expected = if is_ready { 2 } else { 3 };
                assert_eq!(receiver.recv().await, Some(expected));
                is_ready
            })
            .await;
        }
        in_each_way(async |way| {
            let (sender, receiver) = mpsc::channel::<()>(1);
            let is_ready = way
                .run(sender.closed(), async || drop(receiver))
                .await
                .is_some();
            sender.closed().await;
            is_ready
        })
        .await;
    });
}

#[test]
fn signals_and_tasks() {
    leaves_nothing("tasks::signals_and_tasks", async || {
        in_each_way(async |way| {
            let mut signals = signal(SignalKind::user_defined1()).unwrap();
            let event = async || kill_process(getpid(), Signal::USR1).unwrap();
            let received = way.run(signals.recv(), event).await;
            if received.is_none() {
                signals.recv().await.unwrap();
            }
            received.is_some()
        })
        .await;
        in_each_way(async |way| {
            while coop::has_budget_remaining() {
                coop::consume_budget().await;
            }
            way.run(coop::consume_budget(), nothing).await.is_some()
        })
        .await;
    });
}

#[test]
fn a_local_runtime_keeps_its_tasks_when_what_awaits_them_is_dropped() {
    let runtime = LocalRuntime::new().unwrap();
    runtime.block_on(in_each_way(async |way| {
        let mut task = spawn_local(async {
            yield_now().await;
            7
        });
        let ended = way.run(&mut task, nothing).await;
        let is_ready = ended.is_some();
        let output = match ended {
            Some(output) => output,
            None => task.await,
        };
        assert_eq!(output.unwrap(), 7);
        is_ready
    }));
}
