//! Explanations for an operator of why a host addressed an unmapped LUN.

use crate::access::AccessView;
use model::{Host, Presentation, Target};

/// Returns the reason why `host`, connected to `target` through portal group `tag`, has no logical unit under `lun`,
/// and the remedy, as a sentence without a final period.
pub(crate) fn explain(view: &AccessView, host: &Host, target: &Target, tag: u16, lun: u16) -> String {
    let seen: Vec<&Presentation> = view.access.presentations.iter().filter(|shown| shown.host == host.name).collect();
    let here = seen.iter().find(|shown| shown.target == target.name && shown.lun == lun);
    let name = &host.name;
    if let Some(Presentation { volume, groups, .. }) = here {
        let ask = format!("blockyard host explain {name} {volume}");
        // Presented through this portal group: nothing is visible only if the volume is not open and has no stand-in.
        if groups.is_empty() || groups.contains(&tag) {
            return format!("volume {volume}, which is presented there, is not open; see {ask}");
        }
        let tags: Vec<String> = groups.iter().map(u16::to_string).collect();
        let groups = tags.join(", ");
        return format!(
            "volume {volume} is mapped there only through portal group {groups}, but the session uses group \
             {tag}; log in through that group, and see {ask}"
        );
    }
    let present = format!("blockyard present VOLUME {name} --target {} --lun {lun}", target.name);
    match seen.iter().find(|shown| shown.lun == lun) {
        Some(Presentation { volume, target, .. }) => {
            format!("that LUN is volume {volume} in target {target}; log in to that target, or {present}")
        }
        None => {
            format!("no volume is mapped to it with that LUN; {present}")
        }
    }
}
