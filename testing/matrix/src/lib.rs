//! Runs exchanges by crates for tokio on Tourbillon under tokio's name.

mod case;
mod servers;

use std::{collections::HashSet, process::ExitCode, time::Duration};

pub use case::Case;
use servers::Servers;
pub use servers::{Addresses, Program};
use tokio::{runtime::Builder, time::timeout};

/// Longer than any exchange takes.
const AGES: Duration = Duration::from_secs(60);

/// Runs the cases, and prints a table of those that work. Each exchange has a runtime of its own.
pub fn run(cases: Vec<Case>) -> ExitCode {
    let mut programs: Vec<Program> = Vec::new();
    for &program in cases.iter().flat_map(|case| &case.needs) {
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    let servers = Servers::start(&programs);
    let (mut failed, mut seen) = (0, HashSet::new());
    println!("| crate | exchange |\n|---|---|");
    for case in &cases {
        let is_missing = |&&program: &&Program| servers.addresses.get(program).is_none();
        if let Some(missing) = case.needs.iter().find(is_missing) {
            eprintln!("skipped: {}: {}: no {missing:?}", case.package, case.what);
            continue;
        }
        assert!(
            seen.insert((case.package, case.what)),
            "a case is there twice"
        );
        if case
            .exchanges
            .iter()
            .all(|exchange| works(exchange(servers.addresses)))
        {
            println!("| {} | {} |", case.package, case.what);
        } else {
            eprintln!("failed: {}: {}", case.package, case.what);
            failed += 1;
        }
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns whether an exchange ends without a panic, and the runtime after it.
fn works(exchange: impl Future<Output = ()> + Send + 'static) -> bool {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended = runtime.block_on(async { timeout(AGES, tokio::spawn(exchange)).await });
    runtime.shutdown_timeout(AGES);
    matches!(ended, Ok(Ok(())))
}
