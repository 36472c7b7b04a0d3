use super::super::{AuditCheck, Phase};
use super::*;
use model::Timestamp;

fn record(path: &str) -> AuditRecord {
    AuditRecord {
        number: 0,
        time: Timestamp::from_unix(1_795_000_000),
        phase: Phase::Result,
        intent: None,
        caller: Some("alice".to_owned()),
        role: None,
        auth_method: None,
        address: None,
        method: "POST".to_owned(),
        path: path.to_owned(),
        body: serde_json::json!({"name": "a \"quoted\",\"hash\":\" name"}),
        status: Some(201),
        code: None,
        changed: serde_json::Value::Null,
        unrecorded: 0,
        before: String::new(),
        hash: String::new(),
    }
}

fn open(folder: &Path) -> Chain {
    Chain::open(folder, &AuditHead::default()).expect("opens")
}

fn check(chain: &Chain) -> AuditCheck {
    chain.reader().check(&AuditHead::default()).expect("is read")
}

fn chain_of(folder: &Path, count: usize) -> Chain {
    let mut chain = open(folder);
    for n in 0..count {
        chain.append(&record(&format!("/api/v1/pools/{n}"))).expect("is written");
    }
    chain
}

fn only_file(folder: &Path) -> PathBuf {
    file_of(folder, 1)
}

#[test]
fn chain_is_whole_goes_on_after_a_restart_and_is_paged() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(chain_of(dir.path(), 5));
    let chain = chain_of(dir.path(), 5);
    let check = check(&chain);
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
        let broken = check(&chain).broken.unwrap_or_else(|| panic!("byte {at} was not missed"));
        assert_eq!(broken.number, number, "byte {at}: {}", broken.reason);
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
        let found = check(&chain).broken.expect("it is missed");
        assert_eq!(found.number, broken, "{order:?}: {}", found.reason);
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
    let found = check(&chain).broken.expect("it is missed");
    assert_eq!((found.number, found.reason.as_str()), (3, "its hash does not chain to the previous record"));
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
        let chain = open(dir.path());
        let check = check(&chain);
        assert_eq!((check.records, check.broken), (3, None));
    }
    let chain = chain_of(dir.path(), 1);
    assert_eq!(check(&chain).records, 4);
}

#[test]
fn files_are_bounded_and_the_chain_begins_with_the_first_that_is_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut chain = open(dir.path());
    let mut long = record("/api/v1/pools");
    long.body = serde_json::Value::String("x".repeat(8_000));
    for _ in 0..FILES_MAX * 9 + 5 {
        chain.append(&long).expect("is written");
    }
    assert_eq!(chain.reader().files().len(), FILES_MAX);
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), FILES_MAX + 1);
    let check = check(&chain);
    assert!(check.first > 1 && check.broken.is_none(), "{check:?}");
    assert_eq!(check.records, check.last - check.first + 1);
}

/// If the state names the last record, no head can be forged to fit a shorter log.
#[test]
fn records_that_are_cut_off_are_missed_whatever_the_head_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut chain = chain_of(dir.path(), 3);
    let head_of_three = fs::read(dir.path().join("head")).expect("reads");
    chain.append(&record("/api/v1/pools/3")).expect("is written");
    let state = chain.last().clone();
    let path = only_file(dir.path());
    let whole = fs::read_to_string(&path).expect("reads");
    let three: String = whole.lines().take(3).map(|line| format!("{line}\n")).collect();
    let head = fs::read(dir.path().join("head")).expect("reads");
    for (said, known) in [
        (Some(&head[..]), &AuditHead::default()),
        (Some(&head), &state),
        (Some(&head_of_three), &state),
        (Some(&[]), &state),
        (None, &state),
    ] {
        fs::write(&path, &three).expect("writes");
        match said {
            Some(said) => fs::write(dir.path().join("head"), said).expect("writes"),
            None => fs::remove_file(dir.path().join("head")).expect("removes"),
        }
        let broken = chain.reader().check(known).expect("is read").broken.expect("it is missed");
        assert_eq!(broken.number, 4, "{}", broken.reason);
        let mut next = Chain::open(dir.path(), known).expect("opens");
        assert!(next.findings().iter().any(|finding| finding.contains("records 4 to 4 are missing")));
        assert_eq!(next.append(&record("/api/v1/pools/4")).expect("is written"), 5);
        assert_eq!(next.reader().check(known).expect("is read").broken.expect("it stays missing").number, 4);
        fs::remove_file(file_of(dir.path(), 5)).expect("removes");
    }
}

#[test]
fn head_that_is_missing_short_or_empty_is_a_finding() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(check(&open(dir.path())).findings, [""; 0], "an audit without a record has no head");
    let chain = chain_of(dir.path(), 2);
    let (head, whole) = (dir.path().join("head"), fs::read(dir.path().join("head")).expect("reads"));
    assert_eq!(check(&chain).findings, [""; 0]);
    for (len, told) in [(0, "it is empty"), (30, "truncated")] {
        fs::write(&head, &whole[..len]).expect("writes");
        assert!(check(&chain).findings[0].contains(told));
        let mut chain = open(dir.path());
        chain.append(&record("/api/v1/pools")).expect("is written");
        assert!(check(&chain).findings[0].contains(told), "it is told though the head is whole again");
    }
    fs::remove_file(&head).expect("removes");
    assert!(check(&open(dir.path())).findings[0].contains("missing"));
}

/// Flips each bit of the last record, including its line end: the chain continues after it, and verification names it.
#[test]
fn chain_whose_last_record_is_damaged_goes_on_behind_it() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(chain_of(dir.path(), 3));
    let path = only_file(dir.path());
    let whole = fs::read(&path).expect("reads");
    let last = whole.len() - whole.split_inclusive(|byte| *byte == b'\n').next_back().expect("a line").len();
    let bits = (last * 8..whole.len() * 8).step_by(37).chain([last * 8 + 7, whole.len() * 8 - 1, whole.len() * 8 - 6]);
    for bit in bits {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &changed).expect("writes");
        let mut chain = open(dir.path());
        assert!(chain.findings()[0].contains("record 3 is damaged"), "bit {bit}: {:?}", chain.findings());
        assert_eq!(chain.append(&record("/api/v1/hosts")).expect("is written"), 4);
        assert_eq!(check(&chain).broken.expect("it is named").number, 3);
        assert_eq!(fs::read(&path).expect("reads"), changed, "what is damaged stays");
        fs::remove_file(file_of(dir.path(), 4)).expect("removes");
        fs::remove_file(dir.path().join("head")).expect("removes");
        head::write(dir.path(), 3, &chain_hash(&whole)).expect("writes");
    }
}

/// Hash of the last record of a file.
fn chain_hash(file: &[u8]) -> String {
    let line = file.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).expect("a line");
    opened(line).expect("is whole").1
}

/// Damages each file of the log in every way that a disk or an operator can, one at a time: a listed record is as
/// written, damage is reported, and no number is used twice.
#[test]
fn audit_with_any_damaged_file_lists_nothing_else_and_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("a folder");
    let chain = chain_of(dir.path(), 200);
    let (truth, files) = (all_of(&chain), chain.reader().files());
    assert!(files.len() > 1, "{files:?}");
    let state = chain.last().clone();
    drop(chain);
    let mut tried = 0;
    let paths: Vec<PathBuf> = files.into_iter().chain([dir.path().join("head")]).collect();
    let whole: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("reads")).collect();
    for (path, content) in paths.iter().zip(&whole) {
        let mut harms: Vec<(String, Option<Vec<u8>>)> = vec![("gone".to_owned(), None)];
        for at in (0..content.len()).step_by((content.len() / 70).max(1)) {
            let mut changed = content.clone();
            changed[at] ^= 1 << (at % 8);
            harms.push((format!("a flipped bit in byte {at}"), Some(changed)));
        }
        for at in (0..content.len()).step_by((content.len() / 15).max(1)) {
            let mut changed = content.clone();
            changed[at..].fill(0);
            harms.push((format!("zeros from byte {at} on"), Some(changed)));
            harms.push((format!("cut to {at} bytes"), Some(content[..at].to_vec())));
        }
        harms.extend(whole.iter().map(|other| ("the content of another".to_owned(), Some(other.clone()))));
        for (harm, harmed) in harms {
            // Opening may repair what a power loss has left, so each case uses another folder.
            let beside = tempfile::tempdir().expect("a folder");
            for (other, content) in paths.iter().zip(&whole) {
                let content = if other == path { harmed.as_ref() } else { Some(content) };
                let there = beside.path().join(other.file_name().expect("a file"));
                content.map_or(Ok(()), |content| fs::write(there, content)).expect("writes");
            }
            let what = format!("{} with {harm}", path.display());
            let mut chain = Chain::open(beside.path(), &state).unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
            let listed = all_of(&chain);
            assert!(listed.iter().all(|record| truth.contains(record)), "{what}: a record is another one");
            let found = chain.reader().check(&state).expect("is read");
            // A start checks the last file and the head, a verification checks everything.
            let is_misplaced = *path != paths[0] && harm.starts_with("the content") && harmed.as_ref() != Some(content);
            assert!(!is_misplaced || !chain.findings().is_empty(), "{what}: the start tells nobody");
            let is_told = found.broken.is_some() || !found.findings.is_empty();
            assert!(
                is_told || listed == truth,
                "{what}: {} records are missing, and nobody is told",
                truth.len() - listed.len()
            );
            let number = chain.append(&record("/api/v1/hosts")).unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
            assert!(number > 200, "{what}: number {number} is given again");
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried}");
}

/// All records that are listed.
fn all_of(chain: &Chain) -> Vec<AuditRecord> {
    chain.reader().page(u64::MAX, 10_000, None).expect("is read").records
}

#[test]
fn file_that_is_deleted_under_the_audit_takes_no_record() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut chain = chain_of(dir.path(), 2);
    fs::remove_file(only_file(dir.path())).expect("removes");
    let refusal = chain.append(&record("/api/v1/hosts")).expect_err("refused");
    assert_eq!(refusal.code, code::AUDIT_UNUSABLE);
}

#[test]
fn audit_that_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(only_file(dir.path())).expect("a folder in the place of the file");
    assert_eq!(Chain::open(dir.path(), &AuditHead::default()).err().expect("refused").code, code::AUDIT_UNUSABLE);
}
