//! Privileges of the daemon: it drops all capabilities, and every way to gain one.

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// Drops all capabilities of this thread, and keeps it and every program that it would start from gaining one.
///
/// *Errors*: the call that the system refused, as a sentence.
pub(super) fn drop_privileges() -> Result<Option<String>, String> {
    // Landlock and seccomp require it of a process without `CAP_SYS_ADMIN`, which is dropped below.
    set_no_new_privs(true).map_err(|errno| format!("no_new_privs: {errno}"))?;
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            // End of the capabilities that this kernel knows.
            Err(Errno::INVAL) => break,
            // Needs `CAP_SETPCAP`. Without privileges, `no_new_privs` alone has the same effect.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(format!("bounding set: {errno}")),
        }
    }
    match clear_ambient_capability_set() {
        // Linux before 4.3 has no ambient set.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(format!("ambient set: {errno}")),
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    // After the bounding set, which needs `CAP_SETPCAP` to be reduced.
    let held = capabilities(None).map_err(|errno| format!("capabilities: {errno}"))?;
    if held != none {
        set_capabilities(None, none).map_err(|errno| format!("capabilities: {errno}"))?;
    }
    let user = geteuid();
    Ok(Some(if user.is_root() {
        "user root without capabilities".to_owned()
    } else {
        format!("user {}", user.as_raw())
    }))
}
