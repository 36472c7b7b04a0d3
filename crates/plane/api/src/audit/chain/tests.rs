use super::*;
use model::Timestamp;

fn record(path: &str) -> AuditRecord {
    AuditRecord {
        number: 0,
        time: Timestamp::from_unix(1_795_000_000),
        caller: Some("alice".to_owned()),
        role: None,
        how: None,
        address: None,
        method: "POST".to_owned(),
        path: path.to_owned(),
        body: serde_json::json!({"name": "a \"quoted\",\"hash\":\" name"}),
        status: 201,
        code: None,
        changed: serde_json::Value::Null,
        unrecorded: 0,
        before: String::new(),
        hash: String::new(),
    }
}

fn chain_of(folder: &Path, count: usize) -> Chain {
    let mut chain = Chain::open(folder).expect("opens");
    for n in 0..count {
        chain.append(&record(&format!("/api/v1/pools/{n}"))).expect("is written");
    }
    chain
}

fn only_file(folder: &Path) -> PathBuf {
    path(folder, 1)
}

#[test]
fn chain_is_whole_goes_on_after_a_restart_and_is_paged() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(chain_of(dir.path(), 5));
    let chain = chain_of(dir.path(), 5);
    let check = chain.reader().check().expect("is read");
    assert_eq!((check.first, check.last, check.records, &check.broken), (1, 10, 10, &None));
    let page = chain.reader().page(u64::MAX, 4, None).expect("is read");
    let numbers: Vec<u64> = page.records.iter().map(|record| record.number).collect();
    assert_eq!((numbers, page.next), (vec![10, 9, 8, 7], Some(7)));
    let page = chain.reader().page(3, 4, None).expect("is read");
    assert_eq!((page.records.len(), page.next), (2, None));
    let found = chain.reader().page(u64::MAX, 100, Some("POOLS/4")).expect("is read");
    assert_eq!(found.records.len(), 2);
}

#[test]
fn any_byte_that_is_changed_is_found_and_its_record_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let chain = chain_of(dir.path(), 4);
    let path = only_file(dir.path());
    let whole = fs::read(&path).expect("reads");
    let mut number = 1;
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).expect("writes");
        let broken =
            chain.reader().check().expect("is read").broken.unwrap_or_else(|| panic!("byte {at} was not missed"));
        assert_eq!(broken.number, number, "byte {at}: {}", broken.why);
        number += u64::from(whole[at] == b'\n');
    }
}

#[test]
fn records_that_are_taken_out_put_in_or_moved_are_missed() {
    let dir = tempfile::tempdir().expect("a folder");
    let chain = chain_of(dir.path(), 5);
    let path = only_file(dir.path());
    let whole = fs::read_to_string(&path).expect("reads");
    let lines: Vec<&str> = whole.lines().collect();
    for (order, broken) in [
        (&[0, 1, 3, 4][..], 3),
        (&[1, 2, 3, 4], 1),
        (&[0, 1, 2, 3], 5),
        (&[0, 2, 1, 3, 4], 2),
        (&[0, 1, 1, 2, 3, 4], 3),
        (&[], 1),
    ] {
        let text: String = order.iter().map(|&n| format!("{}\n", lines[n])).collect();
        fs::write(&path, text).expect("writes");
        let found = chain.reader().check().expect("is read").broken.expect("it is missed");
        assert_eq!(found.number, broken, "{order:?}: {}", found.why);
    }
}

#[test]
fn record_that_was_made_up_with_a_right_hash_of_its_own_is_missed_by_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let chain = chain_of(dir.path(), 3);
    let path = only_file(dir.path());
    let whole = fs::read_to_string(&path).expect("reads");
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    let mut second: AuditRecord = serde_json::from_str(&lines[1]).expect("a record");
    second.caller = Some("bob".to_owned());
    lines[1] = sealed(&second).expect("seals").0.trim_end().to_owned();
    fs::write(&path, lines.join("\n") + "\n").expect("writes");
    let found = chain.reader().check().expect("is read").broken.expect("it is missed");
    assert_eq!((found.number, found.why.as_str()), (3, "it does not hang on the record before"));
}

#[test]
fn line_that_the_power_cut_short_is_taken_away_and_the_chain_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(chain_of(dir.path(), 3));
    let path = only_file(dir.path());
    let whole = fs::read(&path).expect("reads");
    for cut in [1, 40, 200] {
        let torn = [&whole[..], &whole[..cut]].concat();
        fs::write(&path, torn).expect("writes");
        let chain = Chain::open(dir.path()).expect("opens");
        let check = chain.reader().check().expect("is read");
        assert_eq!((check.records, check.broken), (3, None));
    }
    let chain = chain_of(dir.path(), 1);
    assert_eq!(chain.reader().check().expect("is read").records, 4);
}

#[test]
fn files_are_bounded_and_the_chain_begins_with_the_first_that_is_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut chain = Chain::open(dir.path()).expect("opens");
    let mut long = record("/api/v1/pools");
    long.body = serde_json::Value::String("x".repeat(8_000));
    for _ in 0..FILES_MAX * 9 + 5 {
        chain.append(&long).expect("is written");
    }
    assert_eq!(chain.reader().files().len(), FILES_MAX);
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), FILES_MAX + 1);
    let check = chain.reader().check().expect("is read");
    assert!(check.first > 1 && check.broken.is_none(), "{check:?}");
    assert_eq!(check.records, check.last - check.first + 1);
}
