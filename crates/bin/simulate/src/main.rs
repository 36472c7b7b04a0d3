//! Runner of seeds; prints one line per failure, with the command that repeats it.

// The futures of a command are nested as deeply as its layers.
#![recursion_limit = "256"]

use clap::Parser;
use simulate::{InjectedBug, Profile, RoundResult, run};
use std::cell::RefCell;
use std::io::Write;
use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Run the whole data plane from seeds, with faulty networks, lying disks and power failures, and check every result.
#[derive(Parser)]
#[command(after_help = "Example: simulate --profile power-cut --seed 1 --seeds 1000")]
struct Args {
    /// Simulate this profile: network, power-cut, disks, write-back, families, full, growth, refusing, misbehaving, or
    /// all
    #[arg(long, default_value = "all", value_parser = profiles)]
    profile: Profiles,
    /// Start at this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this number of seeds of each profile.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Run this number of seeds at once; the default is one per core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Plant this bug into the data plane and run the profile that detects it.
    #[arg(long)]
    plant: Option<InjectedBug>,
    /// Corrupt pool metadata instead, and print the results by structure.
    #[arg(long, conflicts_with_all = ["profile", "plant"])]
    damage: bool,
    /// Show the log of the data plane.
    #[arg(long)]
    log: bool,
}

thread_local! {
    /// Command that repeats the run of this thread.
    static RUNNING: RefCell<String> = const { RefCell::new(String::new()) };
}

#[derive(Clone)]
struct Profiles(Vec<Profile>);

fn profiles(text: &str) -> Result<Profiles, String> {
    if text == "all" { Ok(Profiles(Profile::ALL.to_vec())) } else { text.parse().map(|one| Profiles(vec![one])) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.log {
        let filter = tracing_subscriber::EnvFilter::new("debug");
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    let profiles = args.plant.map_or(args.profile.0, |bug| vec![bug.profile()]);
    let total = args.seeds * profiles.len() as u64;
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    panic::set_hook(Box::new(|panicked| {
        // The program may be built to abort on a panic: this is the last chance to print the command of the run.
        say(&format!("{}    # {panicked}", RUNNING.take()));
    }));
    if args.damage {
        return campaign(args.seed, args.seeds, jobs);
    }
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    // A common counter instead of equal shares, because the duration of seeds differs much.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        return;
                    }
                    // The profiles take turns, so that an interrupted run has covered all of them.
                    let profile = profiles[(number % profiles.len() as u64) as usize];
                    let seed = args.seed + number / profiles.len() as u64;
                    failed.fetch_add(u64::from(!play(profile, seed, args.plant, total == 1)), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    say(&format!("{} passed, {failed} failed", total - failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs rounds of corruption; prints violations as they occur, and the table at the end.
fn campaign(first: u64, seeds: u64, jobs: usize) -> ExitCode {
    let next = AtomicU64::new(0);
    let (rounds, wrong) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        return;
                    }
                    let seed = first + number;
                    let again = format!("cargo run --release -p simulate -- --damage --seed {seed}");
                    RUNNING.set(again.clone());
                    let (damage, found) = simulate::damage(seed);
                    if let RoundResult::Wrong(why) = &found {
                        let what = damage.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
                        say(&format!("{again}    # {what}: {why}"));
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                    // Rounds in which nothing could be corrupted are not counted.
                    if let Some(damage) = damage {
                        rounds.lock().unwrap_or_else(PoisonError::into_inner).push((damage, found));
                    }
                }
            });
        }
    });
    let rounds = rounds.into_inner().unwrap_or_else(PoisonError::into_inner);
    say(simulate::table(&rounds).trim_end());
    let wrong = wrong.into_inner();
    say(&format!("{} rounds, {wrong} findings", rounds.len()));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a seed; on a violation prints the command that repeats it, and returns false.
fn play(profile: Profile, seed: u64, bug: Option<InjectedBug>, alone: bool) -> bool {
    let planted = bug.map_or_else(|| format!("--profile {profile}"), |bug| format!("--plant {bug}"));
    let again = format!("cargo run --release -p simulate -- {planted} --seed {seed}");
    // Set before the run: the panic hook prints it.
    RUNNING.set(again.clone());
    let outcome = run(profile, seed, bug);
    if let Some(why) = &outcome.wrong {
        say(&format!("{again}    # {why}"));
    }
    if alone {
        say(&format!("{} commands, digest {:016x}", outcome.commands, outcome.digest));
    }
    outcome.wrong.is_none()
}

/// Prints a line; a closed standard output is ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
