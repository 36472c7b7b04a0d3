use super::*;

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

fn opened(source: Source, now: Timestamp) -> Result<Certificate, Refusal> {
    let certificate = Certificate::new(source);
    certificate.refresh(now).map(|_| certificate)
}

fn told(certificate: &Certificate) -> CertificateReport {
    certificate.report().expect("it can be used")
}

const NOW: Timestamp = Timestamp::from_unix(1_795_000_000);

#[test]
fn certificate_is_made_once_kept_renewed_before_its_end_and_keeps_its_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("web");
    let source = Source::Generated { folder: folder.clone(), names: names(&["array1", "127.0.0.1", "localhost"]) };
    let first = told(&opened(source.clone(), NOW).expect("made"));
    assert!(first.generated && first.fingerprint.len() == 95 && first.pin.starts_with("sha256:"));
    let days = first.until.since(NOW) / DAY;
    assert!((LASTS_DAYS - 1..=LASTS_DAYS).contains(&days), "{days}");
    for file in ["key.pem", "certificate.pem"] {
        assert_eq!(fs::metadata(folder.join(file)).expect("is there").mode() & 0o777, 0o600);
    }
    let kept = opened(source.clone(), NOW.plus(DAY)).expect("opens");
    assert_eq!(told(&kept), first);
    assert!(!kept.refresh(NOW.plus(DAY)).expect("nothing to do"));
    let late = NOW.plus((LASTS_DAYS - RENEWED_DAYS) * DAY);
    assert!(kept.refresh(late).expect("renews"));
    let renewed = told(&kept);
    assert_ne!(renewed.fingerprint, first.fingerprint);
    assert_eq!(renewed.pin, first.pin, "who trusts the key need not look again");
    let other = Source::Generated { folder, names: names(&["array2"]) };
    let other = told(&opened(other, late).expect("made for other names"));
    assert!(other.fingerprint != renewed.fingerprint && other.pin == first.pin);
}

#[test]
fn certificate_of_its_owner_is_read_again_when_it_changes_and_never_replaced_by_nonsense() {
    let dir = tempfile::tempdir().expect("a folder");
    let (certificate, key) = (dir.path().join("c.pem"), dir.path().join("k.pem"));
    let put = |name: &str| {
        let pair = KeyPair::generate().expect("a key");
        let made = params(&names(&[name]), NOW).and_then(|params| params.self_signed(&pair)).expect("a certificate");
        fs::write(&certificate, made.pem()).expect("writes");
        fs::write(&key, pair.serialize_pem()).expect("writes");
    };
    let source = Source::Own { certificate: certificate.clone(), key: key.clone() };
    let missing = opened(source.clone(), NOW).expect_err("nothing is there");
    assert_eq!(missing.code, code::CERTIFICATE_UNUSABLE);
    put("a");
    let open = opened(source.clone(), NOW).expect("opens");
    let first = told(&open);
    assert!(!first.generated);
    put("a.longer.name");
    assert!(open.refresh(NOW).expect("reads again"));
    let second = told(&open);
    assert_ne!(second.fingerprint, first.fingerprint);
    fs::write(&certificate, "nonsense").expect("writes");
    open.refresh(NOW).expect_err("no certificate");
    assert_eq!(told(&open), second, "what there was is used on");
    put("b");
    fs::write(&key, KeyPair::generate().expect("a key").serialize_pem()).expect("writes");
    let refusal = opened(source, NOW).expect_err("the key is another's");
    assert!(refusal.message.contains("not the key of the certificate"), "{refusal}");
}

#[test]
fn certificate_of_a_clock_that_was_wrong_is_made_anew_once_the_clock_is_right() {
    // An empty clock battery: the first start is in 1970, or in the future and the clock is set back later.
    for wrong in [Timestamp::from_unix(60), NOW.plus(20 * 365 * DAY)] {
        let dir = tempfile::tempdir().expect("a folder");
        let source = Source::Generated { folder: dir.path().join("web"), names: names(&["array1"]) };
        let open = opened(source.clone(), wrong).expect("made");
        let first = told(&open);
        assert!(first.from <= wrong && wrong < first.until);
        assert!(open.refresh(NOW).expect("looked at"), "while the daemon runs");
        let right = told(&open);
        assert!(right.from <= NOW && NOW < right.until && right.pin == first.pin);
        let again = opened(source, NOW).expect("opens");
        assert_eq!(told(&again), right, "and it is kept");
    }
}
