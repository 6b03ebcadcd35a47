//! A game with cooldowns on a paused clock. See the README in this directory.

mod game;
mod world;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tourbillon::runtime::Builder;
use tourbillon_examples::{
    arguments::arguments,
    say::{self, complain},
};

use self::game::Game;

/// Play a game, and check that each cooldown ended exactly at its time.
#[derive(Parser)]
struct Args {
    /// Number of players.
    #[arg(
        long, default_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000),
    )]
    players: u32,
    /// Number of abilities per player.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100))]
    abilities: u32,
    /// Length of the game, in its own time.
    #[arg(
        long, value_name = "DURATION", default_value = "2m",
        value_parser = humantime::parse_duration,
    )]
    length: Duration,
    /// Random seed. The line on stdout depends on nothing else.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Make the cooldowns of this ability (by number) a nanosecond too long, to see that the check
    /// finds it.
    #[arg(long, value_name = "ABILITY")]
    spoil: Option<usize>,
}

fn main() -> ExitCode {
    say::end("game_cooldowns", play(&arguments()))
}

fn play(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let begin = std::time::Instant::now();
    let runtime = Builder::new().start_paused(true).build()?;
    let game = Game::new(args.players, args.abilities, args.length, args.seed)?;
    let report = runtime.block_on(game.play(args.spoil));
    say::say(&report);
    // On stderr, because it differs between runs.
    let (game, wall) = (report.length.as_secs_f64(), begin.elapsed().as_secs_f64());
    complain(format_args!(
        "{game:.3} s of the game took {wall:.3} s: {:.1} times as fast",
        game / wall
    ));
    match report.wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} cooldowns went wrong").into()),
    }
}
