//! Players and the cooldowns of their abilities, on a clock that takes no time. See README.md
//! beside this.

mod game;
mod world;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tourbillon::Runtime;

use self::game::{Game, Report};

/// Plays a game, and checks that each cooldown ended exactly when it had to.
#[derive(Parser)]
struct Args {
    /// How many players there are.
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    players: u32,
    /// How many abilities each of them has.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100))]
    abilities: u32,
    /// How long the game is, in its own time.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = humantime::parse_duration)]
    length: Duration,
    /// Where the dice begin: the same game, and the same line on stdout, each time.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Let the cooldowns of this ability, by its number, be a nanosecond too long: to see that it is
    /// found out.
    #[arg(long, value_name = "ABILITY")]
    spoil: Option<usize>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match play(&args) {
        Ok(report) if report.wrong == 0 => ExitCode::SUCCESS,
        Ok(report) => {
            eprintln!("game_cooldowns: {} cooldowns went wrong", report.wrong);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("game_cooldowns: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &Args) -> Result<Report, Box<dyn std::error::Error>> {
    let begin = std::time::Instant::now();
    let runtime = Runtime::builder().start_paused(true).build()?;
    let game = Game::new(args.players, args.abilities, args.length, args.seed)?;
    let report = runtime.block_on(game.play(args.spoil));
    println!("{report}");
    // Apart from what is the same each time.
    let (game, wall) = (report.length.as_secs_f64(), begin.elapsed().as_secs_f64());
    eprintln!(
        "{game:.3} s of the game took {wall:.3} s: {:.1} times as fast",
        game / wall
    );
    Ok(report)
}
