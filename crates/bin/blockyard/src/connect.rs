//! What to type on the host, for each kind of host. Secrets are never printed.

use control::PresentationReport;
use std::net::SocketAddr;

/// The lines for open-iscsi, Windows, ESXi and qemu.
pub fn lines(seen: &PresentationReport) -> String {
    let portal = Portal::of(seen.portals.first().copied());
    let blocks = [
        ("Linux (open-iscsi)", open_iscsi(seen, &portal)),
        ("Windows (PowerShell)", windows(seen, &portal)),
        ("ESXi (HBA is your software adapter, such as vmhba64)", esxi(seen, &portal)),
        ("qemu", qemu(seen, &portal)),
    ];
    let block = |(title, lines): &(&str, Vec<String>)| {
        lines.iter().fold(format!("\n{title}:\n"), |text, line| text + "  " + line + "\n")
    };
    let notes = [
        portal.wildcard.then_some("ADDRESS stands for any address of this node that the host can reach."),
        seen.chap_user.is_some().then_some("SECRET stands for the host's CHAP secret."),
        seen.mutual_chap_user.is_some().then_some("OURS stands for the secret that we prove."),
    ];
    let notes: Vec<&str> = notes.into_iter().flatten().collect();
    let text: String = blocks.iter().map(block).collect();
    if notes.is_empty() { text } else { format!("{text}\n{}\n", notes.join(" ")) }
}

/// A portal as hosts write it.
struct Portal {
    address: String,
    port: u16,
    wildcard: bool,
}

impl Portal {
    fn of(address: Option<SocketAddr>) -> Self {
        match address {
            Some(address) if !address.ip().is_unspecified() => {
                let bare = address.ip();
                let text = if bare.is_ipv6() { format!("[{bare}]") } else { bare.to_string() };
                Self { address: text, port: address.port(), wildcard: false }
            }
            other => Self { address: "ADDRESS".to_owned(), port: other.map_or(3260, |a| a.port()), wildcard: true },
        }
    }

    fn with_port(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }
}

fn open_iscsi(seen: &PresentationReport, portal: &Portal) -> Vec<String> {
    let node = format!("iscsiadm -m node -T {}", seen.iqn);
    let update = |key: &str, value: &str| format!("{node} -o update -n node.session.auth.{key} -v '{value}'");
    let mut lines = vec![format!("iscsiadm -m discovery -t sendtargets -p {}", portal.with_port())];
    if let Some(user) = &seen.chap_user {
        lines.extend([update("authmethod", "CHAP"), update("username", user), update("password", "SECRET")]);
    }
    if let Some(user) = &seen.mutual_chap_user {
        lines.extend([update("username_in", user), update("password_in", "OURS")]);
    }
    lines.push(format!("{node} --login"));
    lines
}

fn windows(seen: &PresentationReport, portal: &Portal) -> Vec<String> {
    let address = portal.address.trim_start_matches('[').trim_end_matches(']');
    let mut lines = Vec::new();
    let chap = seen.chap_user.as_ref().map_or(String::new(), |user| {
        let kind = if seen.mutual_chap_user.is_some() { "MUTUALCHAP" } else { "ONEWAYCHAP" };
        format!(" -AuthenticationType {kind} -ChapUsername '{user}' -ChapSecret 'SECRET'")
    });
    if seen.mutual_chap_user.is_some() {
        lines.push("Set-IscsiChapSecret -ChapSecret 'OURS'".to_owned());
    }
    lines.push(format!("New-IscsiTargetPortal -TargetPortalAddress {address} -TargetPortalPortNumber {}", portal.port));
    lines.push(format!("Connect-IscsiTarget -NodeAddress {} -IsPersistent $true{chap}", seen.iqn));
    lines
}

fn esxi(seen: &PresentationReport, portal: &Portal) -> Vec<String> {
    let mut lines = vec!["esxcli iscsi software set --enabled=true".to_owned()];
    let chap = |direction: &str, user: &str, secret: &str| {
        format!(
            "esxcli iscsi adapter auth chap set --adapter=HBA --direction={direction} --level=required \
             --authname='{user}' --secret='{secret}'"
        )
    };
    lines.extend(seen.chap_user.as_ref().map(|user| chap("uni", user, "SECRET")));
    lines.extend(seen.mutual_chap_user.as_ref().map(|user| chap("mutual", user, "OURS")));
    lines.push(format!("esxcli iscsi adapter discovery sendtarget add --adapter=HBA --address={}", portal.with_port()));
    lines.push("esxcli storage core adapter rescan --adapter=HBA".to_owned());
    lines
}

fn qemu(seen: &PresentationReport, portal: &Portal) -> Vec<String> {
    let url = format!("iscsi://{}/{}/{}", portal.with_port(), seen.iqn, seen.lun);
    let access = if seen.read_only { ",readonly=on" } else { "" };
    let drive = format!("qemu-system-x86_64 -drive file={url},format=raw,if=virtio{access}");
    match &seen.chap_user {
        None => vec![format!("{drive} -iscsi initiator-name=INITIATOR")],
        Some(user) => vec![format!(
            "{drive} -object secret,id=chap,file=SECRET-FILE -iscsi initiator-name=INITIATOR,user={user},password-secret=chap"
        )],
    }
}
