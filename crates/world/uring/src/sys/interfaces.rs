//! Addresses of this machine's network interfaces.

use model::LocalAddress;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Flags of an interface with a link: administratively up, and with a carrier.
const LINKED: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;

/// Returns every address of this machine, in order.
///
/// *Errors*: those of the operating system.
pub(crate) fn interface_addresses() -> io::Result<Vec<LocalAddress>> {
    // Any socket will do for queries of interfaces.
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut mtus: BTreeMap<CString, u32> = BTreeMap::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a place for one pointer; on success it heads a list that is ours to free.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is a node of the list, which is not freed before the loop has ended.
        let node = unsafe { &*next };
        // Skips entries without an IP address, such as those of the link layer.
        if let (Some(address), Some(mask)) = (ip_of(node.ifa_addr), ip_of(node.ifa_netmask)) {
            // SAFETY: every node has a name that ends, and is not freed before the loop has ended.
            let name = unsafe { CStr::from_ptr(node.ifa_name) };
            // Once per interface: an interface may have many addresses.
            let mtu_bytes = *mtus.entry(name.to_owned()).or_insert_with(|| mtu_of(&socket, name).unwrap_or(0));
            found.push(LocalAddress {
                address,
                prefix: prefix_of(mask),
                interface: name.to_string_lossy().into_owned(),
                is_up: node.ifa_flags & LINKED.cast_unsigned() == LINKED.cast_unsigned(),
                mtu_bytes,
            });
        }
        next = node.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs, is freed once, and no node of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// MTU of the interface in bytes; `None` when it no longer exists.
fn mtu_of(socket: &OwnedFd, interface: &CStr) -> Option<u32> {
    let name = interface.to_bytes_with_nul();
    // SAFETY: an interface request is bytes and numbers, for which zeros are values.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_name.get_mut(..name.len())?.iter_mut().zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
    // SAFETY: the request is a live value with a name that ends; the kernel writes its MTU into it.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, so the union holds the MTU.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: a socket address that is not null begins with its family, whatever family that is.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in; it may lie at any alignment.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6; it may lie at any alignment.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

fn prefix_of(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    u8::try_from(ones).expect("a mask has at most 128 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_addresses_include_loopback_with_its_prefix() {
        let addresses = interface_addresses().expect("the kernel lists its interfaces");
        let lo = addresses.iter().find(|it| it.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("there is loopback");
        assert_eq!((lo.prefix, lo.interface.as_str(), lo.is_up), (8, "lo", true));
        assert!(lo.mtu_bytes >= 1280, "{lo:?}");
    }
}
