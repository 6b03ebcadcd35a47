//! Tourbillon and its peers on the same workloads, interleaved in one run.

mod system;
mod workloads;

use std::env;

fn main() {
    let args: Vec<String> = env::args().collect();
    let [_, run, workload, system] = &args[..] else {
        panic!("run WORKLOAD SYSTEM");
    };
    assert_eq!(run, "run");
    let workload = workloads::ALL
        .iter()
        .find(|known| known.name == workload)
        .expect("a workload");
    let system = system.parse().expect("a system");
    for figure in (workload.run)(system, false) {
        println!("{} {}", figure.name, figure.value);
    }
}
