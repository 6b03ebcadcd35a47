//! The stack of a stall is where stalls are shown.

use std::{
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use tourbillon::runtime::Builder;
use tourbillon_stacks::on_stall;
use tourbillon_support::PATIENCE;

#[inline(never)]
fn blocks(until: Sender<()>) {
    // It fails when the other end is gone.
    while until.send(()).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stack_is_in_the_list_the_recorder_and_its_trace() {
    let (sender, called) = channel();
    let mut builder = Builder::new();
    builder
        .worker_threads(2)
        .stall_threshold(Duration::from_millis(5));
    on_stall(&mut builder, move |stall, stack| {
        let _ = sender.send((stall.clone(), stack.cloned()));
    })
    .unwrap();
    let runtime = builder.build().unwrap();
    let (until, told) = channel();
    runtime.spawn(async move { blocks(until) });
    // Two stacks while it runs.
    let mut stacks = Vec::new();
    while stacks.len() < 2 {
        let (stall, stack) = called.recv_timeout(PATIENCE).unwrap();
        assert!(stall.is_running);
        stacks.extend(stack.map(|stack| stack.to_string()));
        let recent = runtime.recent_stalls().remove(0).stall;
        // There may be one more by now.
        let listed: Vec<_> = recent.stacks.iter().map(|it| (**it).to_owned()).collect();
        assert!(listed.starts_with(&stacks), "{listed:?}");
    }
    drop(told);
    // The end has them, too.
    let end = loop {
        let (stall, _) = called.recv_timeout(PATIENCE).unwrap();
        if !stall.is_running {
            break stall;
        }
    };
    assert!(end.stacks.len() >= 2);
    let text = end.stacks.concat();
    assert!(text.contains("shown::blocks"), "{text}");
    let mut trace = Vec::new();
    let snapshot = runtime.flight_recorder().snapshot();
    tourbillon_flight::write_trace(&snapshot, &mut trace).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let rows = trace["tourbillon"]["stacks"].as_array().unwrap();
    let times = rows.iter().map(|row| row["times"].as_u64().unwrap());
    assert_eq!(times.sum::<u64>() as usize, end.stacks.len());
    let events = trace["traceEvents"].as_array().unwrap();
    let stall = events.iter().find(|event| event["name"] == "STALL");
    let first = stall.unwrap()["args"]["stack 1"].as_str().unwrap();
    assert_eq!(first, &*end.stacks[0]);
}
