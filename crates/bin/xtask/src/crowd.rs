//! As many sessions and units as there may be, and strangers who mean harm: whoever behaves is served all the same.
//!
//! The daemon has one core and everybody else the other, so the ratios are of what is left of that one, too.

mod attack;
mod bystander;
mod guests;
mod hall;
mod steady;

use crate::client::Client;
use anyhow::{Context, Result, anyhow};
use attack::Attack;
use bystander::Bystander;
use clap::Args;
use guests::Guests;
use hall::Hall;
use lab::meter::{resident_kib, stay_on};
use lab::target::Target;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::thread;
use std::time::{Duration, Instant};
use steady::Rate;

const SERVER_CORE: usize = 1;
const CLIENT_CORE: usize = 0;
/// Sessions that are measured.
const STEADY: usize = 16;
/// Where the crowd's sessions may not make the daemon larger by more than this, each.
const SESSION_KIB_MAX: f64 = 32.0;
/// What is left to those who behave.
const SHARE_MIN: f64 = 0.8;
/// How often that is measured where it is less: other work on the machine takes from one measurement and not from all.
const TRIES: usize = 3;
/// What the daemon takes at most, attack included, beside its sessions: 256 MiB with 2,048 of them.
const PEAK_MIB_MAX: u64 = 192;
/// Hosts, volumes and sessions where there are many.
const MANY: u16 = 10_000;
/// The number of the one who comes late; of those who are measured, and of the crowd, the first.
const LATE: u16 = 100;
const FIRST_STEADY: u16 = 0;
const FIRST_GUEST: u16 = 1000;

/// Between two looks for what the target asks of those who wait.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Options {
    /// Sessions of the crowd, each of an initiator of its own; with those who are measured 2,048 unless told, or 10,000 with --many
    #[arg(long)]
    sessions: Option<u16>,
    /// Units of the target that everybody sees
    #[arg(long, default_value_t = 1024)]
    units: u16,
    /// Instead, a host for each initiator and a target for every four of them: 4,096 units, 512 targets, 16,384 LUN maps
    #[arg(long)]
    table: bool,
    /// Instead, from one document: a host and a volume for each session, eight to a target; and every page of the console over all of it
    #[arg(long, conflicts_with = "table")]
    many: bool,
    /// How long each measurement lasts
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

impl Options {
    fn guests(&self) -> u16 {
        let all = if self.many { MANY } else { 2048 };
        self.sessions.unwrap_or(all - STEADY as u16 - 1)
    }
}

/// Prints what came out; false when somebody was not served, or too slowly, or memory was not bounded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    raise_descriptors()?;
    stay_on(CLIENT_CORE).context("cannot stay on the clients' core")?;
    let scratch = tempfile::tempdir()?;
    let guests: Vec<u16> = (FIRST_GUEST..FIRST_GUEST + options.guests()).collect();
    let steady = FIRST_STEADY..FIRST_STEADY + STEADY as u16;
    let callers: Vec<u16> = steady.clone().chain([LATE]).chain(guests.iter().copied()).collect();
    let hall = Hall::open(scratch.path(), options, &callers)?;
    let (pid, span) = (hall.product.pid(), Duration::from_secs(options.seconds));
    let mut steady: Vec<Client> =
        steady.map(|number| Client::log_in(hall.unit(number)?, number)).collect::<Result<_>>()?;
    let alone = steady::measure(&mut steady, span)?;
    let before = resident_kib(pid)?;
    let guests = welcome(&hall, &guests, &mut steady)?;
    let each = (resident_kib(pid)? - before) as f64 / f64::from(options.guests());
    let served = guests.commands;
    println!("login storm    {} sessions in {:.1?}", options.guests(), guests.logged_in_within);
    println!("memory         {} MiB before, {each:.1} KiB for each session", before >> 10);
    let crowded = steady::measure(&mut steady, span).context("in the crowd")?;
    let pages_open = !options.many || hall.show_pages(&mut steady)?;
    let bystander = Bystander::stand(hall.unit(FIRST_STEADY)?)?;
    let elsewhere = Attack::begin(&bystander.unit);
    let beside = steady::measure(&mut steady, span).context("beside an attack on somebody else")?;
    elsewhere.end()?;
    bystander.leave();
    let attack = Attack::begin(hall.unit(FIRST_STEADY)?);
    let share_of = |rate: &Rate| rate.per_second / alone.per_second;
    let mut attacked = steady::measure(&mut steady, span).context("under attack")?;
    let mut tries = 1;
    while tries < TRIES && share_of(&attacked) < SHARE_MIN {
        let again = steady::measure(&mut steady, span)?;
        attacked = if share_of(&again) > share_of(&attacked) { again } else { attacked };
        tries += 1;
    }
    let peak = resident_kib(pid)?;
    let begin = Instant::now();
    let late = Client::log_in(hall.unit(LATE)?, LATE);
    let welcome = begin.elapsed();
    let harm = attack.end()?;
    println!("attack         {harm}");
    println!("memory         {} MiB under attack", peak >> 10);
    println!(
        "good login     {}",
        late.as_ref().map_or_else(|error| format!("{error:#}"), |_| format!("in {welcome:.1?}"))
    );
    print("alone", &alone, &alone);
    print("in the crowd", &crowded, &alone);
    print("beside one", &beside, &alone);
    print("under attack", &attacked, &alone);
    println!(
        "beside one     {:.2} of that rate and {:.2} of that p99 are what is under attack: strangers and clients share a core",
        attacked.per_second / beside.per_second,
        attacked.p99.as_secs_f64() / beside.p99.as_secs_f64()
    );
    let all_live = guests.leave()?;
    println!("sessions       {all_live} of {} live; {served} commands of theirs ended with GOOD", options.guests());
    let log_lines = hall.product.log_lines()?;
    println!("log            {log_lines} lines");
    let is_served = late.is_ok() && all_live == options.guests();
    let peak_max = (PEAK_MIB_MAX << 10) + (SESSION_KIB_MAX * f64::from(options.guests())) as u64;
    let is_bounded = each <= SESSION_KIB_MAX && peak <= peak_max;
    println!(
        "crowd: {}, {}, {:.2} of the rate is left under attack ({SHARE_MIN} is asked for)",
        if is_served { "everybody was served" } else { "somebody was not served" },
        if is_bounded { "memory is bounded" } else { "memory grew" },
        share_of(&attacked)
    );
    Ok(is_served && is_bounded && pages_open && share_of(&attacked) >= SHARE_MIN)
}

/// The crowd comes, while these clients answer what they are asked.
fn welcome(hall: &Hall, numbers: &[u16], waiting: &mut [Client]) -> Result<Guests> {
    thread::scope(|scope| {
        let welcome = scope.spawn(|| Guests::welcome(hall, numbers));
        Client::attend(waiting, LOOK, || Ok(welcome.is_finished()))?;
        welcome.join().map_err(|_| anyhow!("the crowd panicked"))?
    })
}

fn print(name: &str, rate: &Rate, alone: &Rate) {
    let share = rate.per_second / alone.per_second;
    println!("{name:<14} {:.0} IOPS ({share:.2}), p99 {:?}", rate.per_second, rate.p99);
}

/// As many descriptors as the system allows.
fn raise_descriptors() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
