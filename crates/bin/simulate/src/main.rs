//! Runs seeds and prints one line for each that fails: the command that runs it again.

use clap::Parser;
use simulate::{Profile, Sabotage, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Run the whole data plane from seeds, against bad networks, lying disks and power cuts, and judge it.
#[derive(Parser)]
#[command(after_help = "Example: simulate --profile power-cut --seed 1 --seeds 1000")]
struct Args {
    /// What to simulate: network, power-cut, disks or all.
    #[arg(long, default_value = "all", value_parser = profiles)]
    profile: Profiles,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from the first on, of each profile.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// How many run at once; one for each core unless told otherwise.
    #[arg(long)]
    jobs: Option<usize>,
    /// Show what the data plane logs.
    #[arg(long)]
    log: bool,
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
    let profiles = args.profile.0;
    let total = args.seeds * profiles.len() as u64;
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicU64::new(0);
    let failed = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        return;
                    }
                    let profile = profiles[(number % profiles.len() as u64) as usize];
                    let seed = args.seed + number / profiles.len() as u64;
                    let outcome = run(profile, seed, Sabotage::Nothing);
                    if let Some(why) = outcome.wrong {
                        *failed.lock().expect("nobody panics with it") += 1;
                        println!("cargo run -p simulate -- --profile {profile} --seed {seed}    # {why}");
                    } else if total == 1 {
                        println!("{} commands, digest {:016x}", outcome.commands, outcome.digest);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics with it");
    println!("{} passed, {failed} failed", total - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
