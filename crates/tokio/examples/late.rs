//! Prints how late a sleep of 5 ms ends in a task: with the facade, and in a runtime of the real
//! tokio, by turns.

use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(5);
const ROUNDS: usize = 4;
const SLEEPS: usize = 200;

fn print(name: &str, mut late: Vec<Duration>) {
    late.sort();
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    let (half, most) = (at(50), at(99));
    println!("{name}: p50 {half:?}, p99 {most:?}, {} sleeps", late.len());
}

/// Returns how late each of the sleeps ends.
async fn measure<S: Future>(sleep: fn(Duration) -> S) -> Vec<Duration> {
    let mut late = Vec::new();
    for _ in 0..SLEEPS {
        let start = Instant::now();
        sleep(SLEEP).await;
        late.push(start.elapsed().saturating_sub(SLEEP));
    }
    late
}

fn main() -> std::io::Result<()> {
    let facade = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let real = real::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (mut of_facade, mut of_real) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let task = facade.spawn(measure(tokio::time::sleep));
        of_facade.extend(facade.block_on(task).map_err(std::io::Error::other)?);
        let task = real.spawn(measure(real::time::sleep));
        of_real.extend(real.block_on(task).map_err(std::io::Error::other)?);
    }
    print("facade", of_facade);
    print("real tokio", of_real);
    Ok(())
}
