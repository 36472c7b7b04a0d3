//! Steps for Proxmox VE: its nodes are Linux hosts, and the storage of the cluster is on top of their disks.

use super::{Step, Target, View, linux};

pub(super) fn steps(view: &View) -> Vec<Step> {
    // On every node of the cluster, each with its own initiator name.
    let mut steps = linux::steps(view);
    // The check of the result stays the last step.
    let seen = steps.pop();
    for step in &mut steps {
        step.description += ", on each node";
    }
    // The iSCSI storage of Proxmox VE has no multipath, so with several paths it gets LVM on the multipath device.
    if view.has_paths() {
        let lines = [
            "pvcreate /dev/mapper/MAP && vgcreate blockyard /dev/mapper/MAP   # MAP as multipath -ll shows it",
            "cat >> /etc/pve/storage.cfg <<END",
            "lvm: blockyard",
            "    vgname blockyard",
            "    shared 1",
            "    content images,rootdir",
            "    saferemove 0",
            "END",
        ];
        let what = "Create a volume group on the volume and add it to the cluster, once, on one node";
        steps.push(Step::new(what, lines.map(str::to_owned)));
    } else {
        steps.extend(view.targets.iter().enumerate().map(|(n, target)| without_paths(n, target)));
    }
    steps.extend(seen);
    if let Some(last) = steps.last_mut() {
        last.lines.push("pvesm status   # blockyard is active".to_owned());
    }
    steps
}

/// Returns the step that makes each LUN available as a disk of a guest.
fn without_paths(n: usize, target: &Target) -> Step {
    let name = if n == 0 { "blockyard".to_owned() } else { format!("blockyard-{}", n + 1) };
    let lines = [
        "cat >> /etc/pve/storage.cfg <<END".to_owned(),
        format!("iscsi: {name}"),
        format!("    portal {}", target.portal().with_port()),
        format!("    target {}", target.iqn),
        "    content images".to_owned(),
        "END".to_owned(),
    ];
    Step::new("Add the target to the cluster, once, on one node; each LUN can be the disk of a guest", lines)
}
