use super::*;
use crate::args::System;

fn presentation(volume: &str, lun: u16, iqn: &str, portals: &[&str]) -> PresentationReport {
    PresentationReport {
        volume: volume.parse().expect("a volume"),
        volume_id: "00000000-0000-0000-0000-000000000001".parse().expect("an id"),
        host: "web".parse().expect("a name"),
        target: "default".parse().expect("a name"),
        iqn: iqn.parse().expect("an iSCSI name"),
        lun,
        groups: Vec::new(),
        read_only: lun == 7,
        open: false,
        portals: portals.iter().map(|&portal| portal.to_owned()).collect(),
        chap_user: None,
        mutual_chap_user: None,
    }
}

const IQN: &str = "iqn.2026-11.io.blockyard:a";
const WEB: &str = "iqn.1993-08.org.debian:01:web";

fn view(chap: bool, portals: &[&str]) -> View {
    let chap = (chap.then(|| "web".to_owned()), chap.then(|| "array".to_owned()));
    let seen = [presentation("tank/b", 7, IQN, portals), presentation("tank/a", 0, IQN, portals)];
    View::new(&[WEB.parse().expect("an iSCSI name")], chap, &seen)
}

fn text(view: &View, system: System) -> String {
    view.steps(system).into_iter().flat_map(|step| step.lines).map(|line| line + "\n").collect()
}

const ALL: [System; 5] = [System::Linux, System::Windows, System::Esxi, System::Proxmox, System::Qemu];

#[test]
fn every_kind_of_host_is_told_where_who_and_what_it_should_see() {
    let view = view(true, &["10.0.0.1:3260", "10.0.1.1:3261"]);
    for system in ALL {
        let text = text(&view, system);
        assert!(text.contains("10.0.0.1") && text.contains(IQN), "{system:?}: {text}");
        assert!(text.contains("# LUN 0 of") && text.contains("# LUN 7 of"), "{system:?}: {text}");
        assert!(text.contains("volume tank/b, read-only"), "{system:?}: {text}");
        assert!(text.contains(WEB), "{system:?}: {text}");
        assert!(text.contains("SECRET"), "{system:?}: {text}");
    }
    assert_eq!(view.notes().len(), 2);
}

#[test]
fn multipath_is_set_up_where_there_are_several_paths_and_nowhere_else() {
    let words = [
        (System::Linux, "multipath.conf"),
        (System::Linux, "replacement_timeout"),
        (System::Linux, "multipath -ll"),
        (System::Windows, "Multipath-IO"),
        (System::Windows, "-IsMultipathEnabled"),
        (System::Proxmox, "vgcreate"),
    ];
    let (one, two) = (view(false, &["10.0.0.1:3260"]), view(false, &["10.0.0.1:3260", "10.0.1.1:3260"]));
    for (system, word) in words {
        let word = if word == "multipath.conf" { "/etc/multipath/conf.d/" } else { word };
        assert!(text(&two, system).contains(word), "{system:?}: {word}");
        assert!(!text(&one, system).contains(word), "{system:?}: {word}");
    }
    // Two targets with the same volume are two paths to it.
    let seen = [
        presentation("tank/a", 0, IQN, &["10.0.0.1:3260"]),
        presentation("tank/a", 0, "iqn.2026-11.io.blockyard:b", &[]),
    ];
    assert!(View::new(&[], (None, None), &seen).has_paths());
}

#[test]
fn login_on_linux_sets_everything_before_it_logs_in() {
    let lines = text(&view(true, &["[fd00::5]:3260"]), System::Linux);
    let lines: Vec<&str> = lines.lines().filter(|line| line.starts_with("iscsiadm")).collect();
    assert_eq!(lines[0], "iscsiadm -m discovery -t sendtargets -p [fd00::5]:3260");
    let login = lines.iter().position(|line| line.ends_with("--login")).expect("it logs in");
    for key in ["authmethod", "password", "username_in", "node.startup"] {
        let set = lines.iter().position(|line| line.contains(key)).expect(key);
        assert!(set < login, "{key} is set after the login");
    }
}

#[test]
fn address_that_is_not_known_is_a_word_in_capitals() {
    let view = view(false, &["0.0.0.0:3260", "[::]:3260"]);
    for system in ALL {
        assert!(text(&view, system).contains("ADDRESS"), "{system:?}");
    }
    assert_eq!(view.targets[0].portals.len(), 1, "every address in IPv4 and in IPv6 is one to a host");
    assert_eq!(view.notes(), ["ADDRESS stands for any address of this node that the host can reach."]);
}
