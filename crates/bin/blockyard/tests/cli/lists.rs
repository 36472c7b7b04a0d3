//! Filtered and limited lists, and timeouts of commands that wait.

use crate::lab::{Lab, Outcome};
use serde_json::Value;

/// Creates volumes `v0` to `v11`, and nothing else.
fn dozen() -> Lab {
    let lab = Lab::new();
    for n in 0..12 {
        lab.good(&["volume", "create", &format!("v{n}"), "1MiB", "--null"]);
    }
    lab
}

fn names(outcome: &Outcome) -> Vec<&str> {
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome.stdout.lines().collect()
}

#[test]
fn list_is_searched_and_cut_and_says_how_much_is_left() {
    let lab = dozen();
    let cut = lab.run(&["volume", "list", "-o", "name", "--limit", "3"]);
    assert_eq!(names(&cut), ["v0", "v1", "v10"]);
    assert_eq!(cut.stderr, "blockyard: 9 of 12 volumes are not shown; see all with --limit 12\n");
    let searched = lab.run(&["volume", "ls", "-o", "name", "--search", "V1", "--limit", "2"]);
    assert_eq!(names(&searched), ["v1", "v10"]);
    assert_eq!(searched.stderr, "blockyard: 1 of 3 volumes is not shown; see all with --limit 3\n");
    let whole = lab.run(&["volume", "list", "-o", "name", "--limit", "12"]);
    assert_eq!((names(&whole).len(), whole.stderr.as_str()), (12, ""));
    let quiet = lab.run(&["volume", "list", "-o", "name", "--limit", "3", "--quiet"]);
    assert_eq!((names(&quiet).len(), quiet.stderr.as_str()), (3, ""));
    let json = lab.run(&["volume", "list", "-o", "json", "--limit", "3"]);
    let value: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((value["total"].as_u64(), json.stderr.as_str()), (Some(12), ""), "it says itself how many there are");
    // The search text is literal, whatever characters it has.
    for odd in ["a&limit=1", "100 % #", "ü?"] {
        assert_eq!(names(&lab.run(&["volume", "list", "-o", "name", "--search", odd])).len(), 0, "{odd}");
    }
    for wrong in ["0", "10001", "some", "-1"] {
        let refused = lab.bad(&["volume", "list", &format!("--limit={wrong}")], 2);
        assert!(refused.contains("'--limit <N>'"), "{refused}");
    }
}

#[test]
fn every_list_takes_search_and_limit() {
    let lab = Lab::new();
    lab.furnish();
    let (lists, of_one) = (
        "disk list,disk find,pool list,volume list,snapshot list,host list,host denied,group list,target list,\
         presentation list,session list,portal list,portal groups,operation list,event list,alert active,alert list,\
         alert silenced,user list,user logins,token list,audit list",
        "volume latency tank/vm1,pool scrub status tank,snapshot list tank/vm1",
    );
    for list in lists.split(',').chain(of_one.split(',')) {
        let words: Vec<&str> = list.split_whitespace().chain(["--search", "nobody has this", "--limit", "1"]).collect();
        let outcome = lab.run(&[words.as_slice(), &["--requests", "--no-headers"]].concat());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{list}: {}", outcome.stderr);
        let asked = outcome.stderr.lines().find_map(|line| line.strip_prefix("> GET ")).expect("it asks");
        assert!(asked.contains("search=nobody%20has%20this") && asked.contains("limit=1"), "{list}: {asked}");
    }
}

#[test]
fn settings_are_shown_without_a_request_to_change_them() {
    let lab = Lab::new();
    lab.furnish();
    for words in ["pool set tank", "volume set tank/vm1", "portal set 10.0.0.1:3260", "portal group 1"] {
        let words: Vec<&str> = words.split(' ').chain(["--requests"]).collect();
        let outcome = lab.run(&words);
        assert_eq!(outcome.code, 0, "{words:?}: {}", outcome.stderr);
        let asked: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("> ")).collect();
        assert!(asked.iter().all(|line| line.starts_with("> GET ")) && !asked.is_empty(), "{words:?}: {asked:?}");
    }
}

#[test]
fn snapshots_of_a_volume_are_cut_among_themselves() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["volume", "create", "tank/vm10", "8MiB"]);
    for (volume, name) in [("tank/vm1", "mon"), ("tank/vm1", "tue"), ("tank/vm10", "mon")] {
        lab.good(&["snapshot", "create", volume, name]);
    }
    let cut = lab.run(&["snapshot", "list", "tank/vm1", "--limit", "1", "-o", "name"]);
    assert_eq!(names(&cut), ["tank/vm1@mon"]);
    assert_eq!(cut.stderr, "blockyard: 1 of 2 snapshots is not shown; see all with --limit 2\n");
    assert!(lab.bad(&["snapshot", "list", "tank/vm2"], 3).contains("volume tank/vm2 does not exist"));
}

#[test]
fn events_are_cut_to_the_latest_and_told_oldest_first() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["disk", "fail", "d1"]);
    let all = lab.run(&["event", "list", "-o", "name"]);
    let all = names(&all).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert!(all.len() > 2, "{all:?}");
    let cut = lab.run(&["event", "list", "-o", "name", "--limit", "2"]);
    assert_eq!(names(&cut), all[all.len() - 2..]);
    let left = format!("{} of {} events", all.len() - 2, all.len());
    assert!(cut.stderr.starts_with(&format!("blockyard: {left} ")), "{}", cut.stderr);
    let json: Value = serde_json::from_str(&lab.good(&["event", "list", "-o", "json", "--limit", "2"])).expect("JSON");
    let numbers: Vec<String> = (0..2).map(|n| json["events"][n]["number"].to_string()).collect();
    assert_eq!(numbers, all[all.len() - 2..]);
    let found = lab.good(&["event", "list", "--no-headers", "--search", "DISK D1"]);
    assert!(found.lines().count() > 0 && found.lines().all(|line| line.to_lowercase().contains("disk d1")), "{found}");
    assert_eq!(lab.good(&["event", "list", "--no-headers", "--limit", "0"]), "");
}

#[test]
fn command_that_waits_longer_than_it_may_ends_with_eight() {
    let lab = Lab::new();
    lab.furnish();
    // Slow, so that the rebuild is still running when it is inspected.
    lab.good(&["pool", "set", "tank", "rebuild.max=4MiB/s"]);
    lab.good(&["disk", "fail", "d1"]);
    let late = lab.run(&["disk", "replace", "d1", "d5", "--wait", "--timeout", "200ms", "--quiet"]);
    assert_eq!(
        (late.code, late.stderr.as_str()),
        (
            8,
            "blockyard: the rebuild of pool tank did not finish within 200ms; it continues; see blockyard \
             operation list, or wait longer (BY-1815)\n"
        )
    );
    assert_eq!(lab.run(&["pool", "show", "tank", "--wait", "--timeout", "50ms", "-q"]).code, 8);
    let refused = lab.bad(&["pool", "show", "tank", "--timeout", "50ms"], 2);
    assert!(refused.contains("--wait"), "{refused}");
    let id = lab.good(&["operation", "list", "-o", "name", "--search", "rebuild"]);
    let late = lab.run(&["operation", "show", id.trim_end(), "--wait", "--timeout", "50ms", "-q"]);
    assert!(late.code == 8 && late.stderr.contains(" did not finish within 50ms"), "{id}: {}", late.stderr);
}

#[test]
fn document_whose_initiators_are_late_ends_with_eight_and_one_that_shuts_them_out_with_four() {
    let lab = Lab::new();
    lab.furnish();
    let document = lab.good(&["export"]);
    let other = document.replace("iqn.2001-04.com.example:web", "iqn.2001-04.com.example:new");
    std::fs::write(lab.dir.path().join("other.toml"), other).expect("writes");
    let apply =
        ["apply", "-f", "other.toml", "--yes", "--initiator", "iqn.2001-04.com.example:new", "--within", "100ms"];
    let late = lab.run(&[&apply[..], &["-q"]].concat());
    assert_eq!(late.code, 8, "{}", late.stderr);
    assert!(late.stderr.contains("has not logged in again") && late.stderr.ends_with("(BY-1854)\n"), "{}", late.stderr);
    assert_eq!(lab.good(&["export"]), document, "it was taken back");
    // The host is logged in and would lose its volume.
    let own = "iqn.1993-08.org.debian:01:abc123";
    lab.good(&["host", "change", "web", "--add-initiator", own]);
    std::fs::write(lab.dir.path().join("none.toml"), lab.good(&["export"])).expect("writes");
    lab.good(&["present", "tank/vm1", "web"]);
    let shut =
        lab.run(&["apply", "-f", "none.toml", "--prune", "--yes", "--allow-disruption", "-q", "--initiator", own]);
    assert_eq!(shut.code, 4, "{}", shut.stderr);
    assert!(shut.stderr.contains("would lose volume tank/vm1"), "{}", shut.stderr);
}

#[test]
fn first_lun_for_an_initiator_that_is_logged_in_as_anybody_takes_consent() {
    let lab = Lab::new();
    lab.furnish();
    // The host is logged in and sees a volume as the host for any initiator.
    let own = "iqn.1993-08.org.debian:01:abc123";
    lab.good(&["host", "add", "guests", "--any"]);
    lab.good(&["present", "tank/vm1", "guests"]);
    let up = ["up", "tank/vm2", "8MiB", "--initiator", own, "--host", "own"];
    let refused = lab.bad(&up, 4);
    assert!(refused.contains("1 session would lose access") && refused.contains("tank/vm1"), "{refused}");
    assert!(refused.ends_with("repeat with --allow-disruption (BY-1222)"), "{refused}");
    assert!(!lab.good(&["volume", "list"]).contains("tank/vm2"), "nothing was made");
    lab.good(&[&up[..], &["--allow-disruption"]].concat());
    assert!(
        lab.good(&["presentation", "list", "--no-headers"]).contains("own\t1\ttank/vm2"),
        "LUN 0 it knows as another"
    );
}
