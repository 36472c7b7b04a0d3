//! Settings for ESXi: its software iSCSI adapter and virtual switches, with `esxcli`.

use super::{Machine, Terms};
use crate::connect::Step;

pub(super) fn steps(terms: Terms, machine: Machine) -> Vec<Step> {
    let Terms { commands, segment_bytes, first_burst_bytes, burst_bytes, .. } = terms;
    let key =
        |name: &str, value: &str| format!("esxcli iscsi adapter param set --adapter=HBA --key={name} --value={value}");
    let mut sessions = vec![
        "# HBA is the software adapter: esxcli iscsi adapter list. The limits of the array; \
         smaller values need more PDUs."
            .to_owned(),
    ];
    sessions.push(key("FirstBurstLength", &first_burst_bytes.to_string()));
    sessions.push(key("MaxBurstLength", &burst_bytes.to_string()));
    sessions.push(key("MaxRecvDataSegment", &segment_bytes.to_string()));
    sessions.push("# Delayed acknowledgements slow down writers while the array has nothing else to send.".to_owned());
    sessions.push(key("DelayedAck", "false"));
    let with = ["# Another path takes over: fail this one early.".to_owned(), key("RecoveryTimeout", "10")];
    let without = [
        "# There is no other path: wait until the array is available again.".to_owned(),
        key("RecoveryTimeout", "120"),
    ];
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
        format!("# The array accepts {commands} commands in flight per session. Takes effect after a restart of ESXi."),
        format!(
            "esxcli system module parameters set --module=iscsi_vmk --parameter-string='iscsivmk_LunQDepth={commands}'"
        ),
        "# Guests on one volume share this limit; set it for each volume after the rescan.".to_owned(),
        format!(
            "for d in $(esxcli storage core device list | grep -B 4 'Vendor: BLOCKYRD' | grep '^naa'); do esxcli storage core device set --device=$d --sched-num-req-outstanding={commands}; done"
        ),
    ];
    let network = [
        "# Jumbo frames, only if every switch and the array support them: see blockyard tune show on the array. \
         SWITCH and VMK are those of iSCSI.",
        "esxcli network vswitch standard set --vswitch-name=SWITCH --mtu=9000",
        "esxcli network ip interface set --interface-name=VMK --mtu=9000",
        "# One VMkernel port for each card, bound to that card: every path has its own queue and core.",
        "esxcli iscsi networkportal add --adapter=HBA --nic=VMK",
    ];
    vec![
        Step::new("Set session parameters to the limits of the array", sessions),
        Step::new("Set the queue depth of volumes", queues),
        Step::new("Set jumbo frames and bind one path to each card", network.map(str::to_owned)),
    ]
}
