//! Steps for qemu with its own initiator, libiscsi.

use super::{Step, View};

pub(super) fn steps(view: &View) -> Vec<Step> {
    let initiator = view.initiator.as_ref().map_or("INITIATOR", |initiator| initiator.as_str());
    let typed = |lines: Vec<String>| {
        lines
            .into_iter()
            .map(|line| line.replace("initiator-name=INITIATOR", &format!("initiator-name={initiator}")))
            .collect::<Vec<_>>()
    };
    let mut seen = view.units();
    seen.extend(view.targets.iter().map(|target| {
        let user = view.chap_user.as_ref().map_or(String::new(), |user| format!("{user}%SECRET@"));
        format!(
            "iscsi-ls -s -i {initiator} iscsi://{user}{}   # {} and its LUNs",
            target.portal().with_port(),
            target.iqn
        )
    }));
    let mut steps = vec![Step::new("Check the result (package libiscsi-bin)", seen)];
    steps.push(Step::new("Start a guest with a volume (package qemu-block-extra)", typed(log_in(view))));
    steps
}

/// Returns the LUN as written in a URL of libiscsi, which sends the number as the first two bytes of the LUN field:
/// above 255 that needs flat space addressing, 4000h plus the number.
///
/// *Source*: SAM-5 §4.7.7, libiscsi's README.
fn raw_lun(lun: u16) -> u16 {
    if lun > PERIPHERAL_LUN_MAX { FLAT_SPACE | lun } else { lun }
}

/// Largest LUN with peripheral device addressing.
const PERIPHERAL_LUN_MAX: u16 = 255;
/// Addressing method of flat space, in the first two bits.
const FLAT_SPACE: u16 = 0x4000;

pub(super) fn log_in(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for (target, unit) in view.targets.iter().flat_map(|target| target.units.iter().map(move |unit| (target, unit))) {
        let url = format!("iscsi://{}/{}/{}", target.portal().with_port(), target.iqn, raw_lun(unit.lun));
        let access = if unit.read_only { ",readonly=on" } else { "" };
        let drive = format!("qemu-system-x86_64 -drive file={url},format=raw,if=virtio{access}");
        lines.push(match &view.chap_user {
            None => format!("{drive} -iscsi initiator-name=INITIATOR"),
            // A file, because all users of the machine can read a command line.
            Some(user) => format!(
                "{drive} -object secret,id=chap,file=SECRET-FILE -iscsi initiator-name=INITIATOR,user={user},password-secret=chap"
            ),
        });
    }
    lines
}
