//! Steps for Windows: its own initiator and MPIO, by PowerShell.

use super::{Step, View};

pub(super) fn steps(view: &View) -> Vec<Step> {
    let mut steps = vec![Step::new(
        "Start the initiator, now and at each boot",
        ["Set-Service MSiSCSI -StartupType Automatic; Start-Service MSiSCSI".to_owned()],
    )];
    if let Some(initiator) = &view.initiator {
        steps.push(Step::new(
            "Set the initiator name",
            [format!(
                "Set-InitiatorPort -NodeAddress (Get-InitiatorPort | ? ConnectionType -eq iSCSI).NodeAddress -NewNodeAddress {initiator}"
            )],
        ));
    }
    if view.has_paths() {
        let lines = [
            "Install-WindowsFeature Multipath-IO   # Windows Server; restart needed the first time",
            "Enable-MSDSMAutomaticClaim -BusType iSCSI",
            "New-MSDSMSupportedHW -VendorId BLOCKYRD -ProductId Volume",
            "Set-MSDSMGlobalDefaultLoadBalancePolicy -Policy RR",
            "Set-MPIOSetting -NewPathVerificationState Enabled -NewPDORemovePeriod 30",
        ];
        steps.push(Step::new("Set up multipath", lines.map(str::to_owned)));
    }
    steps.push(Step::new("Discover the target and log in, now and at each boot", log_in(view, view.has_paths())));
    let mut seen = view.units();
    seen.push(
        "Get-IscsiSession | Format-Table TargetNodeAddress, IsConnected, IsPersistent, NumberOfConnections".to_owned(),
    );
    seen.push("Get-Disk | ? BusType -eq iSCSI | Format-Table Number, FriendlyName, Size, OperationalStatus   # BLOCKYRD Volume".to_owned());
    if view.has_paths() {
        seen.push("mpclaim -s -d   # each volume once, Round Robin".to_owned());
    }
    seen.push(
        "Get-Disk | ? FriendlyName -like 'BLOCKYRD*' | ? PartitionStyle -eq RAW | Initialize-Disk -PartitionStyle \
         GPT   # only new disks of this array"
            .to_owned(),
    );
    steps.push(Step::new("Check the result", seen));
    steps
}

/// Returns the login commands; with `everywhere` a session through each portal, else one session.
pub(super) fn log_in(view: &View, everywhere: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let chap = view.chap_user.as_ref().map_or(String::new(), |user| {
        let kind = if view.mutual_chap_user.is_some() { "MUTUALCHAP" } else { "ONEWAYCHAP" };
        format!(" -AuthenticationType {kind} -ChapUsername '{user}' -ChapSecret 'SECRET'")
    });
    // The initiator has one mutual secret for all targets, so it is set once, before the connections.
    if view.mutual_chap_user.is_some() {
        lines.push("Set-IscsiChapSecret -ChapSecret 'OURS'".to_owned());
    }
    for target in &view.targets {
        let connect = format!("Connect-IscsiTarget -NodeAddress {} -IsPersistent $true", target.iqn);
        let portal = target.portal();
        let find = format!(
            "New-IscsiTargetPortal -TargetPortalAddress {} -TargetPortalPortNumber {}",
            portal.bare(),
            portal.port
        );
        if !lines.contains(&find) {
            lines.push(find);
        }
        // Without MPIO a second session would show each volume as another disk.
        if !everywhere {
            lines.push(format!("{connect}{chap}"));
            continue;
        }
        for portal in &target.portals {
            let (address, port) = (portal.bare(), portal.port);
            lines.push(format!(
                "{connect} -IsMultipathEnabled $true -TargetPortalAddress {address} -TargetPortalPortNumber {port}{chap}"
            ));
        }
    }
    lines
}
