//! Tests of the alert state: times and events are supplied by the tests.

use super::*;
use model::{Problem, Raised, Severity, SubjectKind, event};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix(1_700_000_000 + seconds)
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn degraded(pool: &str) -> Condition {
    Condition {
        topic: event::POOL_DEGRADED,
        code: event::POOL_DEGRADED,
        subject: Subject::pool(&name(pool)),
        problem: problem(Severity::Warning, &format!("pool {pool}")),
        details: Vec::new(),
        is_chosen: false,
    }
}

fn problem(severity: Severity, subject: &str) -> Problem {
    let text = str::to_owned;
    let (state, meaning, action) = (text("degraded"), text("it serves"), text("replace it"));
    Problem { severity, subject: text(subject), state, meaning, action }
}

fn there(conditions: &[Condition]) -> Conditions {
    Conditions { active: conditions.to_vec(), indeterminate: Vec::new() }
}

fn happened(number: u64, code: EventCode, subject: &Subject) -> Event {
    Event::first(number, Raised::new(at(0), code, subject.clone(), "so it is"))
}

/// Returns the alerts that are due for receiver ops at that second, and marks them as delivered.
fn told(book: &mut Book, seconds: u64) -> Vec<(u64, State)> {
    let ops = name("ops");
    let wanted = Due { receiver: &ops, least: EventSeverity::Warning, gather: 10, remind: 24 * 3600 };
    let due = book.due(&wanted, at(seconds));
    let known: Vec<_> = due.iter().map(|&(n, state)| (n, state, book.alert(n).expect("is there").severity)).collect();
    book.note_delivered(&ops, &known, at(seconds));
    due
}

#[test]
fn condition_is_told_once_reminded_of_after_a_day_and_resolved() {
    let mut book = Book::default();
    let mut heard = Vec::new();
    for second in (0..30 * 3600).step_by(2) {
        let is_so = (100..26 * 3600).contains(&second);
        book.apply_conditions(&if is_so { there(&[degraded("tank")]) } else { there(&[]) }, at(second));
        heard.extend(told(&mut book, second).into_iter().map(|(number, state)| (second, number, state)));
        book.forget(at(second));
    }
    let day = 110 + 24 * 3600;
    assert_eq!(heard, [(110, 1, State::Raised), (day, 1, State::Still), (26 * 3600 + 10, 1, State::Resolved)]);
    assert!(book.alerts.is_empty(), "what is over and told is forgotten");
}

#[test]
fn cable_with_many_disks_is_one_message() {
    let mut book = Book::default();
    let mut lost = Vec::new();
    for second in 0..24 {
        lost.push(degraded(&format!("p{second}")));
        book.apply_conditions(&there(&lost), at(second));
        assert_eq!(told(&mut book, second), [], "more may come");
    }
    assert_eq!(told(&mut book, 30).len(), 24, "three times the usual wait is enough");
}

#[test]
fn what_is_over_before_it_was_told_is_nobody_s_news_unless_a_receiver_was_away() {
    let (mut book, ops) = (Book::default(), name("ops"));
    book.apply_conditions(&there(&[degraded("tank")]), at(0));
    book.apply_conditions(&there(&[]), at(4));
    assert_eq!(told(&mut book, 100), []);
    book.apply_conditions(&there(&[degraded("tank")]), at(200));
    let wanted = Due { receiver: &ops, least: EventSeverity::Warning, gather: 10, remind: 0 };
    let due = book.due(&wanted, at(220));
    book.note_attempt(&wanted, &due, at(220));
    book.apply_conditions(&there(&[]), at(300));
    assert_eq!(told(&mut book, 400), [(1, State::Resolved)], "it was on its way");
}

#[test]
fn alert_that_comes_and_goes_settles_more_slowly() {
    let mut book = Book::default();
    let mut heard = 0;
    for second in 0..1800 {
        let is_so = second % 40 < 20;
        book.apply_conditions(&if is_so { there(&[degraded("tank")]) } else { there(&[]) }, at(second));
        heard += told(&mut book, second).len();
    }
    assert!(heard <= 6, "{heard} messages of 45 comings and goings");
}

#[test]
fn alert_that_becomes_worse_is_told_again() {
    let mut book = Book::default();
    book.apply_conditions(&there(&[degraded("tank")]), at(0));
    assert_eq!(told(&mut book, 10), [(1, State::Raised)]);
    let problem = problem(Severity::Critical, "pool tank");
    let failed = Condition { code: event::POOL_FAILED, problem, ..degraded("tank") };
    book.apply_conditions(&there(std::slice::from_ref(&failed)), at(20));
    assert_eq!(told(&mut book, 40), [(1, State::Worse)]);
    book.apply_conditions(&there(&[degraded("tank")]), at(50));
    assert_eq!(told(&mut book, 70), [], "better is no news before it is over");
}

#[test]
fn what_has_happened_is_an_alert_until_somebody_takes_note_or_it_is_old() {
    let mut book = Book::default();
    let node = Subject::new(SubjectKind::Node, &"n1");
    book.apply_events(&[happened(7, event::CLOCK_STEPPED, &node)], at(0));
    assert_eq!(book.active().count(), 0, "what was there before the first look is no news");
    book.apply_events(&[happened(8, event::CLOCK_STEPPED, &node), happened(9, event::EVENTS_LOST, &node)], at(1));
    let waits =
        |book: &Book| book.active().map(|(n, alert)| (n, alert.facts(n).requires_acknowledgment)).collect::<Vec<_>>();
    assert_eq!(waits(&book), [(1, true), (2, true)]);
    book.end(1, at(2));
    assert_eq!(waits(&book), [(2, true)]);
    book.apply_conditions(&there(&[degraded("tank")]), at(3));
    assert_eq!(waits(&book), [(2, true), (3, false)], "what is looked at ends by itself");
    book.forget(at(2 * DAY));
    assert_eq!(waits(&book), [(3, false)]);
}

#[test]
fn refused_login_is_news_only_when_it_comes_again_and_again() {
    let mut book = Book::default();
    let host = Subject::new(SubjectKind::Host, &"iqn.x:1");
    book.apply_events(&[], at(0));
    let times = |times| Event { count: times, ..happened(1, event::LOGIN_REFUSED, &host) };
    for count in 1..10 {
        book.apply_events(&[times(count)], at(count));
    }
    assert_eq!(book.active().count(), 0);
    book.apply_events(&[times(12)], at(20));
    book.apply_events(&[times(13)], at(21));
    assert_eq!(book.active().map(|(_, alert)| alert.times).collect::<Vec<_>>(), [4]);
    book.forget(at(2 * DAY));
    assert_eq!(book.active().count(), 0, "old news are gone");
}

#[test]
fn what_nobody_knows_just_now_stays_as_it_was() {
    let mut book = Book::default();
    book.apply_conditions(&there(&[degraded("tank")]), at(0));
    let unsure =
        Conditions { active: Vec::new(), indeterminate: vec![(event::POOL_DEGRADED, Subject::pool(&name("tank")))] };
    book.apply_conditions(&unsure, at(1));
    assert_eq!(book.active().count(), 1);
}

#[test]
fn book_that_was_kept_tells_nothing_twice() {
    let mut book = Book::default();
    let tank = Subject::pool(&name("tank"));
    book.apply_events(&[], at(0));
    book.apply_conditions(&there(&[degraded("tank")]), at(0));
    book.apply_events(&[happened(1, event::CLOCK_STEPPED, &tank)], at(0));
    assert_eq!(told(&mut book, 10).len(), 2);
    let json = serde_json::to_string(&book).expect("JSON");
    let mut again: Book = serde_json::from_str(&json).expect("own JSON");
    assert!(again.is_as(&book));
    again.apply_events(&[happened(1, event::CLOCK_STEPPED, &tank)], at(60));
    again.apply_conditions(&there(&[degraded("tank")]), at(60));
    assert_eq!(told(&mut again, 100), []);
}

#[test]
fn silence_holds_the_news_back_until_it_ends() {
    let mut book = Book::default();
    book.silences.insert("pool tank".to_owned(), at(100));
    book.apply_conditions(&there(&[degraded("tank")]), at(0));
    assert_eq!(told(&mut book, 50), []);
    assert_eq!(told(&mut book, 100), [(1, State::Raised)]);
    book.silences.insert(event::POOL_DEGRADED.to_string(), at(200));
    book.apply_conditions(&there(&[degraded("tank"), degraded("pond")]), at(101));
    assert_eq!(told(&mut book, 150), [], "by its code");
}

#[test]
fn receiver_is_not_told_that_it_cannot_be_told() {
    let mut book = Book::default();
    book.apply_events(&[], at(0));
    let ops = Subject::new(SubjectKind::Receiver, &"ops");
    let away = Condition { topic: event::RECEIVER_AWAY, code: event::RECEIVER_AWAY, subject: ops, ..degraded("tank") };
    book.apply_conditions(&there(&[away]), at(0));
    assert_eq!((book.active().count(), told(&mut book, 100)), (1, Vec::new()));
}
