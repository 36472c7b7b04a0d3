//! Steps for Linux: open-iscsi and dm-multipath.

use super::{Step, View};

/// Settings of dm-multipath as tested with a real Linux host; the same as its defaults for a target with ALUA.
const MULTIPATH: [&str; 12] = [
    "devices {",
    "  device {",
    "    vendor \"BLOCKYRD\"",
    "    product \"Volume\"",
    "    prio alua                                # path priority from the portal groups of the array",
    "    path_grouping_policy group_by_prio       # use all paths of the best priority",
    "    path_selector \"service-time 0\"",
    "    path_checker tur",
    "    failback immediate",
    "    no_path_retry 30                         # I/O waits while no path is up; use \"fail\" where a cluster \
     fences",
    "  }",
    "}",
];

pub(super) fn steps(view: &View) -> Vec<Step> {
    let mut steps = vec![Step::new("Install the initiator", ["apt install open-iscsi multipath-tools".to_owned()])];
    if let Some(initiator) = &view.initiator {
        steps.push(Step::new(
            "Set the initiator name",
            [
                format!("echo InitiatorName={initiator} > /etc/iscsi/initiatorname.iscsi"),
                "systemctl restart iscsid".to_owned(),
            ],
        ));
    }
    steps.push(Step::new("Discover the target and log in, now and at each boot", start(view)));
    if view.has_paths() {
        let mut file =
            vec!["mkdir -p /etc/multipath/conf.d && cat > /etc/multipath/conf.d/blockyard.conf <<END".to_owned()];
        file.extend(MULTIPATH.map(str::to_owned));
        file.extend(["END".to_owned(), "systemctl reload-or-restart multipathd".to_owned()]);
        // Before the login, so that multipathd claims the disks when they appear.
        steps.insert(steps.len() - 1, Step::new("Set up multipath", file));
    }
    steps.push(Step::new("Check the result", seen(view)));
    steps
}

fn start(view: &View) -> Vec<String> {
    let mut lines = log_in(view);
    for target in &view.targets {
        let update = format!("iscsiadm -m node -T {} -o update -n", target.iqn);
        let mut more = vec![format!("{update} node.startup -v automatic")];
        if view.has_paths() {
            // With multipath another path takes over quickly; without it, only waiting helps, so the default of 120 s
            // stays.
            more.push(format!("{update} node.session.timeo.replacement_timeout -v 10"));
        }
        let place = lines.iter().position(|line| line.contains(target.iqn.as_str()) && line.ends_with("--login"));
        // The settings of a node record must precede its login.
        let place = place.unwrap_or(lines.len());
        lines.splice(place..place, more);
    }
    lines
}

pub(super) fn log_in(view: &View) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for target in &view.targets {
        let node = format!("iscsiadm -m node -T {}", target.iqn);
        let update = |key: &str, value: &str| format!("{node} -o update -n node.session.auth.{key} -v '{value}'");
        let find = format!("iscsiadm -m discovery -t sendtargets -p {}", target.portal().with_port());
        // Targets behind one portal are found by one discovery.
        if !lines.contains(&find) {
            lines.push(find);
        }
        if let Some(user) = &view.chap_user {
            lines.extend([update("authmethod", "CHAP"), update("username", user), update("password", "SECRET")]);
        }
        if let Some(user) = &view.mutual_chap_user {
            lines.extend([update("username_in", user), update("password_in", "OURS")]);
        }
        lines.push(format!("{node} --login"));
    }
    lines
}

fn seen(view: &View) -> Vec<String> {
    let mut lines = view.units();
    lines.push(
        "iscsiadm -m session -P 3 | grep -E 'Target:|Portal:|Lun:|disk'   # LOGGED IN, and sdX for each LUN".to_owned(),
    );
    lines.push("lsblk -o NAME,SIZE,VENDOR,WWN,MOUNTPOINTS   # BLOCKYRD".to_owned());
    if view.has_paths() {
        lines.push("multipath -ll   # each volume once, each of its paths \"active ready running\"".to_owned());
    }
    lines
}
