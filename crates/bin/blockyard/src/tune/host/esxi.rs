//! Settings for ESXi: its software iSCSI adapter and virtual switches, with `esxcli`.

use super::{Machine, Terms};
use crate::connect::Step;

pub(super) fn steps(terms: Terms, machine: Machine) -> Vec<Step> {
    let Terms { commands, segment_bytes, first_burst_bytes, burst_bytes, .. } = terms;
    let key =
        |name: &str, value: &str| format!("esxcli iscsi adapter param set --adapter=HBA --key={name} --value={value}");
    let mut sessions = vec!["# HBA is the software adapter: esxcli iscsi adapter list. What the array offers; more is not taken, less costs more PDUs.".to_owned()];
    sessions.push(key("FirstBurstLength", &first_burst_bytes.to_string()));
    sessions.push(key("MaxBurstLength", &burst_bytes.to_string()));
    sessions.push(key("MaxRecvDataSegment", &segment_bytes.to_string()));
    sessions.push(
        "# An acknowledgement that waits for company makes a writer wait where the array has nothing else to send."
            .to_owned(),
    );
    sessions.push(key("DelayedAck", "false"));
    let with = ["# Another path goes on: give this one up soon.".to_owned(), key("RecoveryTimeout", "10")];
    let without =
        ["# There is no other path: wait for the array to come back.".to_owned(), key("RecoveryTimeout", "120")];
    match machine.paths {
        Some(true) => sessions.extend(with),
        Some(false) => sessions.extend(without),
        None => {
            sessions.push("# With several paths:".to_owned());
            sessions.extend(with);
            sessions.push("# With one, instead:".to_owned());
            sessions.extend(without.map(|line| if line.starts_with('#') { line } else { format!("# {line}") }));
        }
    }
    let queues = vec![
        format!("# The array takes {commands} commands of a session at once. It holds after a restart of ESXi."),
        format!(
            "esxcli system module parameters set --module=iscsi_vmk --parameter-string='iscsivmk_LunQDepth={commands}'"
        ),
        "# Several guests on one volume share that number; this is for each volume, once it is seen.".to_owned(),
        format!(
            "for d in $(esxcli storage core device list | grep -B 4 'Vendor: BLOCKYRD' | grep '^naa'); do esxcli storage core device set --device=$d --sched-num-req-outstanding={commands}; done"
        ),
    ];
    let network = [
        "# Large packets, only when every switch and the array take them: blockyard tune show there. SWITCH and VMK are those of iSCSI.",
        "esxcli network vswitch standard set --vswitch-name=SWITCH --mtu=9000",
        "esxcli network ip interface set --interface-name=VMK --mtu=9000",
        "# One port of VMkernel for each card, and each bound to one card: every path has a queue and a core of its own.",
        "esxcli iscsi networkportal add --adapter=HBA --nic=VMK",
    ];
    vec![
        Step::new("Let sessions ask for what the array offers", sessions),
        Step::new("Let volumes have as many commands as the array takes", queues),
        Step::new("Let packets be large, and each card a path", network.map(str::to_owned)),
    ]
}
