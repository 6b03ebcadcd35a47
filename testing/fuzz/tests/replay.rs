//! Runs all targets without a fuzzer: on their corpus, on random bytes, and on mutations of the
//! corpus.
//!
//! The inputs depend only on a seed: `TOURBILLON_FUZZ_SEED`, or a fixed one.
//! `TOURBILLON_FUZZ_TIMES` multiplies their number.

use std::{
    env,
    fs::{self, read_dir},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

/// Longer than any input takes on any machine. A longer run is a hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Maximum length of a random input.
const LONGEST: u64 = 600;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |said| said.parse().expect(name))
}

/// The generator xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound.max(1)
    }
}

/// The corpus and the dictionary of a target.
struct Seeds {
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Seeds {
    fn read(target: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut paths: Vec<_> = read_dir(root.join("corpus").join(target))
            .expect("each target has a corpus")
            .map(|entry| entry.expect("it was listed").path())
            .collect();
        paths.sort();
        let corpus: Vec<_> = paths
            .iter()
            .map(|path| fs::read(path).expect("it was listed"))
            .collect();
        assert!(!corpus.is_empty(), "{target} has no corpus");
        let words = fs::read_to_string(root.join("dictionaries").join(target.to_owned() + ".dict"));
        let words = words.unwrap_or_default();
        let words = words.lines().filter_map(word).collect();
        Self { corpus, words }
    }

    /// Returns random bytes, or a mutated input of the corpus.
    fn input(&self, random: &mut Random) -> Vec<u8> {
        if random.below(4) == 0 {
            let length = random.below(LONGEST as usize);
            return (0..length).map(|_| random.next() as u8).collect();
        }
        let mut bytes = self.some(random).to_vec();
        for _ in 0..random.below(6) {
            self.mutate(&mut bytes, random);
        }
        bytes
    }

    fn some(&self, random: &mut Random) -> &[u8] {
        &self.corpus[random.below(self.corpus.len())]
    }

    fn mutate(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(bytes.len() + 1);
        let end = at + random.below((bytes.len() - at).min(32) + 1);
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 => bytes.insert(at, random.next() as u8),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            5 => {
                let other = self.some(random);
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ if !self.words.is_empty() => {
                let word = self.words[random.below(self.words.len())].clone();
                bytes.splice(at..end.min(at + random.below(2) * word.len()), word);
            }
            _ => bytes.extend((0..random.below(8)).map(|_| random.next() as u8)),
        }
        bytes.truncate(16 * 1024);
    }
}

/// Parses a line of a dictionary: the text in quotes, with its escapes.
fn word(line: &str) -> Option<Vec<u8>> {
    let (_, rest) = line.trim().split_once('"')?;
    let text = rest.strip_suffix('"')?.as_bytes();
    let mut word = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (byte, length) = match text[at..] {
            [b'\\', b'x', high, low, ..] => {
                let digits = [high, low];
                let digits = std::str::from_utf8(&digits).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, 4)
            }
            [b'\\', escaped, ..] => (escaped, 2),
            _ => (text[at], 1),
        };
        word.push(byte);
        at += length;
    }
    Some(word)
}

/// Starts a watchdog that aborts the process if an input takes too long.
fn watch(target: &'static str) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut current = Vec::new();
        loop {
            use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
            match receiver.recv_timeout(PATIENCE) {
                Ok(next) => current = next,
                Err(Disconnected) => return,
                Err(Timeout) => {
                    eprintln!("{target} hangs: {}", show(&current));
                    std::process::abort();
                }
            }
        }
    });
    sender
}

/// Formats bytes as a `printf '%b'` command that prints them.
fn show(bytes: &[u8]) -> String {
    let bytes = bytes.iter();
    let text: String = bytes.map(|byte| format!("\\x{byte:02x}")).collect();
    format!("printf '%b' '{text}'")
}

fn replay(target: &'static str, run: fn(&[u8]), count: u64) {
    let seeds = Seeds::read(target);
    let seed = number("TOURBILLON_FUZZ_SEED", 0x7075_7263);
    let count = count * number("TOURBILLON_FUZZ_TIMES", 1);
    let mut random = Random(seed.max(1));
    let watch = watch(target);
    let one = |bytes: &[u8]| {
        watch.send(bytes.to_vec()).expect("the watchdog runs");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(bytes))) {
            eprintln!("{target}, with seed {seed}, fails on: {}", show(bytes));
            resume_unwind(panic);
        }
    };
    seeds.corpus.iter().for_each(|bytes| one(bytes));
    (0..count).for_each(|_| one(&seeds.input(&mut random)));
    println!(
        "{target}: {} of the corpus, and {count} random ones of seed {seed}",
        seeds.corpus.len()
    );
}

macro_rules! targets {
    ($($target:ident: $count:expr;)*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), tourbillon_fuzz::$target::run, $count);
        }
    )*

    /// Checks that no target is missing here: it would never run without a fuzzer.
    #[test]
    fn each_target_is_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = read_dir(root.join("fuzz_targets")).expect("there are targets");
        let mut names: Vec<_> = files
            .map(|file| file.expect("it was listed").path())
            .map(|path| path.file_stem().expect("it has one").to_owned())
            .collect();
        names.sort();
        let mut here = vec![$(stringify!($target)),*];
        here.sort();
        assert_eq!(names, here);
    }};
}

targets! {
    cron: 3_000;
    guard: 100_000;
    http: 4_000;
    shard: 40_000;
    stores: 5_000;
}
