use super::*;
use model::{EventCode, Subject, SubjectKind};
use tempfile::TempDir;

fn raised(second: u64, code: EventCode, name: &str) -> Raised {
    Raised::new(Timestamp::from_unix(second), code, Subject::new(SubjectKind::Disk, &name), format!("{name} did it"))
}

fn store(dir: &TempDir) -> Store {
    Store::open(dir.path()).expect("a store")
}

fn all(log: &EventLog) -> Vec<(u64, u64, String)> {
    let line = |event: Event| (event.number, event.count, event.subject.name);
    log.list(EventFilter::default()).into_iter().map(line).collect()
}

#[test]
fn event_log_is_the_same_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let before = {
        let store = store(&dir);
        let log = EventLog::open(&store).expect("a log");
        log.add(&store, vec![raised(1, event::DISK_FAILED, "d0"), raised(2, event::DISK_FAILED, "d1")]).expect("kept");
        log.add(&store, vec![raised(3, event::DISK_FAILED, "d0")]).expect("kept");
        log.list(EventFilter::default())
    };
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    assert_eq!(log.list(EventFilter::default()), before);
    assert_eq!(all(&log), [(1, 2, "d0".to_owned()), (2, 1, "d1".to_owned())]);
    assert_eq!((before[0].since, before[0].time), (Timestamp::from_unix(1), Timestamp::from_unix(3)));
    log.add(&store, vec![raised(4, event::REBUILD_ENDED, "d0")]).expect("kept");
    assert_eq!(all(&log).last().map(|line| line.0), Some(3), "numbers go on");
}

#[test]
fn event_log_counts_an_equal_event_only_while_it_is_fresh() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    log.add(&store, vec![raised(0, event::DISK_FAILED, "d0")]).expect("kept");
    log.add(&store, vec![raised(FOLD_SECONDS, event::DISK_FAILED, "d0")]).expect("kept");
    log.add(&store, vec![raised(2 * FOLD_SECONDS + 1, event::DISK_FAILED, "d0")]).expect("kept");
    assert_eq!(all(&log), [(1, 2, "d0".to_owned()), (2, 1, "d0".to_owned())]);
}

#[test]
fn event_log_tells_an_event_anew_after_the_clock_was_set_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    log.add(&store, vec![raised(10 * FOLD_SECONDS, event::DISK_FAILED, "d0")]).expect("kept");
    log.add(&store, vec![raised(FOLD_SECONDS, event::DISK_FAILED, "d0")]).expect("kept");
    assert_eq!(all(&log), [(1, 1, "d0".to_owned()), (2, 1, "d0".to_owned())]);
}

#[test]
fn event_log_tells_an_event_again_after_another_one_of_its_subject() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    let story = [event::POOL_DEGRADED, event::POOL_WHOLE, event::POOL_DEGRADED, event::POOL_DEGRADED];
    log.add(&store, story.map(|code| raised(1, code, "d0")).into()).expect("kept");
    assert_eq!(
        all(&log).into_iter().map(|(number, times, _)| (number, times)).collect::<Vec<_>>(),
        [(1, 1), (2, 1), (3, 2)]
    );
}

/// Fault 26: a disk that failed every read raised one event a second, each with other figures, and filled the
/// log in half an hour.
#[test]
fn event_log_has_one_event_an_hour_for_each_cause_and_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    log.add(&store, vec![raised(0, event::DISK_FAILED, "d9")]).expect("kept");
    let of_second = |second| {
        let of = |code, name, figure: u64| Raised { sentence: format!("{figure} KiB"), ..raised(second, code, name) };
        // Other events, even of the same disk, do not separate recurring ones.
        let metadata = of(event::METADATA_REPAIRED, "d0", second);
        [of(event::BLOCKS_HEALED, "d0", 4 * second), metadata, of(event::BLOCKS_HEALED, "d1", 4)]
    };
    for half in [0..FOLD_SECONDS / 2, FOLD_SECONDS / 2..FOLD_SECONDS + 10] {
        log.add(&store, half.flat_map(of_second).collect()).expect("kept");
    }
    let listed = log.list(EventFilter::default());
    let of = |code, name: &str| {
        let is_it = |event: &&Event| event.code == code && event.subject.name == name;
        listed.iter().filter(is_it).map(|event| (event.count, event.message.clone())).collect::<Vec<_>>()
    };
    let last = 4 * (FOLD_SECONDS - 1);
    let healed = [(FOLD_SECONDS, format!("{last} KiB")), (10, format!("{} KiB", 4 * (FOLD_SECONDS + 9)))];
    assert_eq!(of(event::BLOCKS_HEALED, "d0"), healed);
    assert_eq!(listed.len(), 7, "the failed disk is still there, and two events for each cause and disk");
    assert_eq!(EventLog::open(&store).expect("a log").list(EventFilter::default()), listed, "also after a restart");
}

#[test]
fn event_log_is_bounded_in_memory_and_on_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    let many = (0..EVENTS_KEPT as u64 + 10).map(|n| raised(n, event::DISK_FAILED, &format!("d{n}"))).collect();
    log.add(&store, many).expect("kept");
    assert_eq!(log.list(EventFilter::default()).len(), EVENTS_KEPT);
    assert_eq!(log.list(EventFilter::default())[0].number, 11);
    let again = EventLog::open(&store).expect("a log");
    assert_eq!(again.list(EventFilter::default()), log.list(EventFilter::default()));
}

#[test]
fn event_log_does_not_let_strangers_push_out_the_rest() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    log.add(&store, vec![raised(0, event::DISK_FAILED, "d0")]).expect("kept");
    let strangers = (0..EVENTS_KEPT).map(|n| raised(1, event::LOGIN_REFUSED, &format!("iqn.{n}"))).collect();
    log.add(&store, strangers).expect("kept");
    let listed = log.list(EventFilter::default());
    assert_eq!(listed.len(), 1 + REFUSALS_MAX);
    assert_eq!(listed.iter().map(|event| event.count).sum::<u64>(), 1 + EVENTS_KEPT as u64);
}

#[test]
fn event_log_lists_what_is_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    let events =
        [(10, event::DISK_FAILED), (20, event::REBUILD_BEGAN), (30, event::REBUILD_ENDED), (40, event::POOL_FAILED)];
    log.add(&store, events.map(|(second, code)| raised(second, code, "d0")).into()).expect("kept");
    let numbers = |wanted: EventFilter| log.list(wanted).into_iter().map(|event| event.number).collect::<Vec<_>>();
    let severity = |severity| EventFilter { severity: Some(severity), ..EventFilter::default() };
    assert_eq!(numbers(severity(EventSeverity::Warning)), [1, 4]);
    assert_eq!(numbers(severity(EventSeverity::Critical)), [4]);
    assert_eq!(numbers(EventFilter { since: Some(Timestamp::from_unix(20)), ..EventFilter::default() }), [2, 3, 4]);
    assert_eq!(numbers(EventFilter { after: 3, ..EventFilter::default() }), [4]);
    assert_eq!(numbers(EventFilter { limit: Some(2), ..EventFilter::default() }), [3, 4]);
}

fn standing(log: &EventLog) -> Vec<u64> {
    log.standing().into_iter().map(|event| event.number).collect()
}

#[test]
fn what_is_still_so_is_kept_until_it_ends_however_much_happens_and_over_a_restart() {
    let dir = TempDir::new().expect("a folder");
    let store = store(&dir);
    let log = EventLog::open(&store).expect("a log");
    let of = |second, code, name: &str| {
        let subject = Subject::new(SubjectKind::Pool, &name);
        Raised::new(Timestamp::from_unix(second), code, subject, format!("{name} has it"))
    };
    log.add(&store, vec![of(1, event::MEMORY_WRONG, "tank"), of(1, event::REDO_LOG_DAMAGED, "pond")]).expect("kept");
    for batch in 0..30 {
        let many = (0..200).map(|one| raised(10 + batch, event::DISK_RETURNED, &format!("d{batch}-{one}")));
        log.add(&store, many.collect()).expect("kept");
    }
    assert_eq!(standing(&log), [1, 2]);
    assert!(log.list(EventFilter::default()).len() <= EVENTS_KEPT);
    let log = EventLog::open(&store).expect("a log");
    assert_eq!(standing(&log), [1, 2], "after a restart");
    log.add(&store, vec![of(90, event::SCRUB_ENDED, "pond"), of(90, event::ACKNOWLEDGED, "tank")]).expect("kept");
    assert_eq!(standing(&log), [2], "a scrub does not tell what a log has lost");
    log.add(&store, vec![of(91, event::SCRUB_FOUND, "tank"), of(92, event::SCRUB_ENDED, "tank")]).expect("kept");
    assert_eq!(standing(&log), [2]);
    log.add(&store, vec![of(93, event::ACKNOWLEDGED, "pond")]).expect("kept");
    assert_eq!((standing(&log), standing(&EventLog::open(&store).expect("a log"))), (vec![], vec![]));
}
