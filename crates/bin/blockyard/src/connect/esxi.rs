//! Steps for ESXi: its software iSCSI adapter, with `esxcli`.

use super::{Step, View};

pub(super) fn steps(view: &View) -> Vec<Step> {
    let enable = "esxcli iscsi software set --enabled=true".to_owned();
    let mut first =
        vec![enable.clone(), "esxcli iscsi adapter list   # HBA below is what this shows, such as vmhba64".to_owned()];
    if let Some(initiator) = &view.initiator {
        first.push(format!("esxcli iscsi adapter set --adapter=HBA --name={initiator}"));
    }
    // By default ESXi changes the path after 1,000 commands, so a short burst uses one path only.
    let rule = "esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --vendor=BLOCKYRD --model=Volume --claim-option=tpgs_on \
                --psp=VMW_PSP_RR --psp-option=iops=1 --description=Blockyard";
    // The first step has enabled the adapter already.
    let log_in = log_in(view).into_iter().filter(|line| *line != enable);
    let mut seen = view.units();
    seen.push("esxcli iscsi session list --adapter=HBA | grep -E 'Target|State'".to_owned());
    seen.push("esxcli storage nmp device list | grep -A 8 BLOCKYRD   # VMW_SATP_ALUA, VMW_PSP_RR, every path among the working paths".to_owned());
    vec![
        Step::new("Enable the software adapter", first),
        // A volume that was claimed before the rule keeps its old plug-in until it is claimed again.
        Step::new("Use all paths for I/O; set this before the first rescan", [rule.to_owned()]),
        Step::new("Discover the target and log in", log_in),
        Step::new("Check the result", seen),
    ]
}

pub(super) fn log_in(view: &View) -> Vec<String> {
    let mut lines = vec!["esxcli iscsi software set --enabled=true".to_owned()];
    let chap = |direction: &str, user: &str, secret: &str| {
        format!(
            "esxcli iscsi adapter auth chap set --adapter=HBA --direction={direction} --level=required \
             --authname='{user}' --secret='{secret}'"
        )
    };
    lines.extend(view.chap_user.as_ref().map(|user| chap("uni", user, "SECRET")));
    lines.extend(view.mutual_chap_user.as_ref().map(|user| chap("mutual", user, "OURS")));
    for target in &view.targets {
        let add = "esxcli iscsi adapter discovery sendtarget add --adapter=HBA --address";
        let line = format!("{add}={}", target.portal().with_port());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push("esxcli storage core adapter rescan --adapter=HBA".to_owned());
    lines
}
