//! Designation descriptors (SPC-4): names of a logical unit, a target port and a target device, as VPD page 83h, CSCD
//! descriptors and ROD tokens contain them.

use crate::identity::{Identity, TargetPort};
use crate::reply::Reply;

/// Returns the UUID designator of a unit (SPC-5).
pub(crate) fn uuid_designator(identity: &Identity) -> [u8; 18] {
    let mut designator = [0; 18];
    // UUID TYPE 1h; the byte behind it is reserved.
    designator[0] = 0x10;
    designator[2..].copy_from_slice(&identity.uuid);
    designator
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Association {
    LogicalUnit = 0x00,
    TargetPort = 0x10,
    TargetDevice = 0x20,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeSet {
    Binary = 1,
    Ascii = 2,
    Utf8 = 3,
}

/// PROTOCOL IDENTIFIER 5h (iSCSI), valid only together with PIV.
const ISCSI: u8 = 0x50;
const PROTOCOL_VALID: u8 = 0x80;

/// Emits one designation descriptor.
pub(crate) fn emit_designator(
    reply: &mut Reply,
    association: Association,
    code_set: CodeSet,
    kind: u8,
    designator: &[u8],
) {
    // SPC-4 defines PIV and PROTOCOL IDENTIFIER for ports and devices alone.
    let (protocol, valid) = match association {
        Association::LogicalUnit => (0, 0),
        Association::TargetPort | Association::TargetDevice => (ISCSI, PROTOCOL_VALID),
    };
    assert!(!designator.is_empty(), "a designator names something");
    let length = u8::try_from(designator.len()).expect("names of our own making are short");
    reply.u8(protocol | code_set as u8).u8(valid | association as u8 | kind).u8(0).u8(length).bytes(designator);
}

/// Emits the designators of a target port, its target port group, and its target device.
pub(crate) fn emit_port(reply: &mut Reply, port: &TargetPort) {
    // Name of an iSCSI target port: target name, `,t,0x` and portal group tag (RFC 7143, SCSI architecture model).
    let port_name = format!("{},t,0x{:04x}", port.target_name, port.portal_group_tag);
    let number = |number: u16| (u32::from(number)).to_be_bytes();
    emit_designator(reply, Association::TargetPort, CodeSet::Binary, 0x4, &number(port.relative_port));
    // The target port group is the portal group.
    emit_designator(reply, Association::TargetPort, CodeSet::Binary, 0x5, &number(port.portal_group_tag));
    emit_designator(reply, Association::TargetPort, CodeSet::Utf8, 0x8, &padded_name(&port_name));
    reply.bytes(&target_device_designator(port));
}

/// Returns the designation descriptor of the target that `port` belongs to.
pub(crate) fn target_device_designator(port: &TargetPort) -> Vec<u8> {
    let mut reply = Reply::new();
    emit_designator(&mut reply, Association::TargetDevice, CodeSet::Utf8, 0x8, &padded_name(&port.target_name));
    reply.as_bytes().to_vec()
}

/// Returns a SCSI name string: null-terminated, with a length that is a multiple of four (SPC-4, SCSI name string
/// designator).
pub(crate) fn padded_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}
