//! The addresses of this machine's network interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Every address of this machine with the length of its network's prefix.
///
/// *Errors*: what the operating system says.
pub fn interface_addresses() -> io::Result<Vec<(IpAddr, u8)>> {
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
        if let (Some(address), Some(mask)) = (ip_of(node.ifa_addr), ip_of(node.ifa_netmask)) {
            found.push((address, prefix_of(mask)));
        }
        next = node.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs, is freed once, and no node of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
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
        assert!(addresses.contains(&(IpAddr::V4(Ipv4Addr::LOCALHOST), 8)), "{addresses:?}");
    }
}
