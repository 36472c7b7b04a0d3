//! Warnings for a volume that is presented where no host can log in, or to everyone.

use crate::lab::Lab;

fn furnished() -> Lab {
    let lab = Lab::new();
    lab.good(&["host", "add", "solo", "--initiator", "iqn.2001-04.com.example:solo"]);
    lab.good(&["volume", "create", "s1", "16MiB", "--ram"]);
    lab.good(&["volume", "create", "s2", "16MiB", "--ram"]);
    lab
}

#[test]
fn presentation_through_a_group_without_portals_warns_and_says_what_to_do() {
    let lab = furnished();
    let said = lab.good(&["present", "s1", "solo", "--group", "7"]);
    assert!(
        said.contains("portal group 7 has no open portal") && said.contains("blockyard portal add ADDRESS group=7"),
        "{said}"
    );
    assert!(!said.contains("ADDRESS:3260"), "nothing is to be typed there: {said}");
    let listed = lab.good(&["presentation", "list", "-o", "table"]);
    let column = |line: &str| line.split_whitespace().rev().nth(1).map(str::to_owned);
    assert_eq!(listed.lines().next().and_then(column).as_deref(), Some("GROUP"), "{listed}");
    let row = listed.lines().find(|line| line.starts_with("solo")).expect("it is listed");
    assert_eq!(column(row).as_deref(), Some("7"), "{listed}");
    let told = lab.run(&["host", "explain", "solo", "s1"]);
    assert!(told.code == 1 && told.stdout.contains("no portal of group 7"), "{}", told.stdout);
}

#[test]
fn presentation_to_whoever_comes_warns_as_one_to_everyone_does() {
    let lab = furnished();
    lab.good(&["host", "add", "any", "--any"]);
    let said = lab.good(&["present", "s2", "any"]);
    assert!(
        said.starts_with("every initiator that belongs to no other host, as host any, has access to volume s2"),
        "{said}"
    );
    assert!(
        said.contains("warning: any initiator that can reach a portal has access, without authentication"),
        "{said}"
    );
}

#[test]
fn portal_of_the_start_is_not_said_to_stand_in_a_file() {
    let told = Lab::new().run(&["portal", "remove", "10.0.0.1"]);
    assert!(
        told.stderr.contains("--portal") && !told.stderr.contains("stands in the configuration"),
        "{}",
        told.stderr
    );
}
