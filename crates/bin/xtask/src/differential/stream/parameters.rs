//! Commands that query or change the properties of a unit.

use super::{Changes, Request, allocation, flags};
use lab::random::Random;

pub(super) fn request(random: &mut Random) -> Request {
    match random.below(20) {
        0..=3 => inquiry(random),
        4..=6 => mode_sense(random),
        7 => mode_select(random),
        8 => log_sense(random),
        9..=10 => report_operations(random),
        11 => report_luns(random),
        12 => capacity(random),
        13..=14 => maintenance(random),
        15 if random.one_in(3) => unit_itself(random),
        15 => start_stop(random),
        16 => prevent_allow(random),
        17 => copy_results(random),
        18 => request_sense(random),
        _ => Request::new("TEST UNIT READY", &[0, flags(random, &[0x01]), 0, 0, 0, 0]),
    }
}

/// Returns one of the usual bytes, or sometimes any byte.
fn among(random: &mut Random, usual: &[u8]) -> u8 {
    if random.one_in(8) { random.next() as u8 } else { usual[random.below(usual.len() as u64) as usize] }
}

fn inquiry(random: &mut Random) -> Request {
    let bytes = allocation(random, 255);
    let [high, low] = (bytes as u16).to_be_bytes();
    let is_vpd = random.one_in(4) || random.one_in(2);
    // A page code without EVPD is invalid, and is sent on purpose at times.
    let page = if is_vpd {
        among(random, &[0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2, 0x88, 0x8F])
    } else if random.one_in(8) {
        0x80
    } else {
        0
    };
    // CMDDT is obsolete.
    let cmddt = if random.one_in(24) { 0x02 } else { 0 };
    let name = match (is_vpd, page) {
        (false, _) => "INQUIRY",
        (true, 0x00) => "INQUIRY, Supported VPD Pages",
        (true, 0x80) => "INQUIRY, Unit Serial Number",
        (true, 0x83) => "INQUIRY, Device Identification",
        (true, 0x86) => "INQUIRY, Extended INQUIRY Data",
        (true, 0xB0) => "INQUIRY, Block Limits",
        (true, 0xB1) => "INQUIRY, Block Device Characteristics",
        (true, 0xB2) => "INQUIRY, Logical Block Provisioning",
        (true, _) => "INQUIRY, another VPD page",
    };
    Request::new(name, &[0x12, u8::from(is_vpd) | cmddt, page, high, low, 0]).reading(bytes)
}

fn mode_sense(random: &mut Random) -> Request {
    let page = among(random, &[0x3F, 0x01, 0x02, 0x03, 0x04, 0x08, 0x0A, 0x1C, 0x00]);
    // PC: current, changeable, default or saved values.
    let control = [0x00, 0x40, 0x80, 0xC0][random.below(4) as usize];
    let subpage = [0, 0, 0, 0x01, 0x02, 0xFF][random.below(6) as usize];
    // At least the header.
    let bytes = allocation(random, 255).max(8);
    let dbd = flags(random, &[0x08]);
    if random.one_in(2) {
        let cdb = [0x1A, dbd, control | page & 0x3F, subpage, bytes as u8, 0];
        return Request::new("MODE SENSE (6)", &cdb).reading(bytes);
    }
    let [high, low] = (bytes as u16).to_be_bytes();
    let cdb = [0x5A, dbd | flags(random, &[0x10]), control | page & 0x3F, subpage, 0, 0, 0, high, low, 0];
    Request::new("MODE SENSE (10)", &cdb).reading(bytes)
}

/// Returns the control page or the caching page with a changed bit, sometimes too short or without PF.
fn mode_select(random: &mut Random) -> Request {
    let mut page = match random.below(4) {
        0 => vec![0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        1 => vec![among(random, &[0x01, 0x1C, 0x02]), 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => vec![0x0A, 10, 0x02, 0x10, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0],
    };
    if random.one_in(2) {
        let at = 2 + random.below(page.len() as u64 - 2) as usize;
        page[at] ^= 1 << random.below(8);
    }
    let is_short = random.one_in(2);
    // The parameter list of MODE SELECT (6) has a header of 4 bytes, that of MODE SELECT (10) one of 8.
    let mut list = vec![0; if is_short { 4 } else { 8 }];
    list.extend(page);
    if random.one_in(8) {
        list.truncate(random.below(list.len() as u64 + 1) as usize);
    }
    // PF is mostly set, and SP rarely.
    let flags = if random.one_in(12) { 0 } else { 0x10 } | if random.one_in(12) { 0x01 } else { 0 };
    let (name, cdb) = if is_short {
        ("MODE SELECT (6)", vec![0x15, flags, 0, 0, list.len() as u8, 0])
    } else {
        ("MODE SELECT (10)", vec![0x55, flags, 0, 0, 0, 0, 0, 0, list.len() as u8, 0])
    };
    Request::new(name, &cdb).writing(list).changing(Changes::State)
}

fn log_sense(random: &mut Random) -> Request {
    let page = among(random, &[0x00, 0x0C, 0x0D, 0x19, 0x2F, 0x3F]) & 0x3F;
    let subpage = [0, 0, 0, 0xFF, 0x01][random.below(5) as usize];
    let bytes = allocation(random, 255);
    let [high, low] = (bytes as u16).to_be_bytes();
    let cdb = [0x4D, flags(random, &[0x01, 0x02]), 0x40 | page, subpage, 0, 0, flags(random, &[0x01]), high, low, 0];
    Request::new("LOG SENSE", &cdb).reading(bytes)
}

fn report_operations(random: &mut Random) -> Request {
    // RCTD, and any bits of REPORTING OPTIONS.
    let options = flags(random, &[0x80, 0x01, 0x02, 0x04]);
    let code = among(random, &[0x00, 0x12, 0x28, 0x2A, 0x42, 0x5E, 0x5F, 0x89, 0x9E, 0xA3, 0xA0, 0xC5]);
    let action = if random.one_in(2) { 0 } else { random.below(0x14) as u8 };
    let bytes = allocation(random, 4096);
    let mut cdb = [0xA3, 0x0C, options, code, 0, action, 0, 0, 0, 0, 0, 0];
    cdb[6..10].copy_from_slice(&bytes.to_be_bytes());
    let name = match options & 0x07 {
        0 => "REPORT SUPPORTED OPERATION CODES, all",
        _ => "REPORT SUPPORTED OPERATION CODES, one",
    };
    Request::new(name, &cdb).reading(bytes)
}

fn report_luns(random: &mut Random) -> Request {
    let select = among(random, &[0x00, 0x00, 0x01, 0x02]);
    let bytes = allocation(random, 128);
    let mut cdb = [0xA0, 0, select, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[6..10].copy_from_slice(&bytes.to_be_bytes());
    Request::new("REPORT LUNS", &cdb).reading(bytes)
}

fn capacity(random: &mut Random) -> Request {
    if random.one_in(2) {
        // Both fields are obsolete (SBC-3).
        let (pmi, lba) = (flags(random, &[0x01]), flags(random, &[0x05]));
        let cdb = [0x25, 0, 0, 0, 0, lba, 0, 0, pmi, 0];
        return Request::new("READ CAPACITY (10)", &cdb).reading(8);
    }
    let bytes = allocation(random, 32);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9], cdb[14]) = (0x9E, 0x10, flags(random, &[0x05]), flags(random, &[0x01]));
    cdb[10..14].copy_from_slice(&bytes.to_be_bytes());
    Request::new("READ CAPACITY (16)", &cdb).reading(bytes)
}

/// Returns MAINTENANCE IN or SERVICE ACTION IN with rarely supported service actions.
fn maintenance(random: &mut Random) -> Request {
    let bytes = allocation(random, 255);
    let (name, code, action) = match random.below(4) {
        0 => ("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", 0xA3, 0x0D | flags(random, &[0x80])),
        1 => ("REPORT TARGET PORT GROUPS", 0xA3, 0x0A | flags(random, &[0x20])),
        2 => ("MAINTENANCE IN, unknown", 0xA3, [0x00, 0x05, 0x10, 0x1F][random.below(4) as usize]),
        _ => ("SERVICE ACTION IN (16), unknown", 0x9E, [0x00, 0x11, 0x1F][random.below(3) as usize]),
    };
    let mut cdb = vec![0; if code == 0xA3 { 12 } else { 16 }];
    (cdb[0], cdb[1]) = (code, action);
    let at = if code == 0xA3 { 6 } else { 10 };
    if action & 0x1F == 0x0D {
        // REPD is in the byte after the service action.
        (cdb[1], cdb[2]) = (0x0D, action & 0x80);
    }
    cdb[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
    Request::new(name, &cdb).reading(bytes)
}

fn start_stop(random: &mut Random) -> Request {
    // START, LOEJ, NO_FLUSH and power conditions.
    let how = match random.below(16) {
        0..=7 => 0x01,
        8..=9 => 0x00,
        10 => 0x02,
        11 => 0x03,
        12 => 0x10,
        13 => 0x05,
        _ => 0x01 | flags(random, &[0x20, 0x08]),
    };
    let cdb = [0x1B, flags(random, &[0x01]), 0, 0, how, 0];
    Request::new("START STOP UNIT", &cdb).changing(Changes::State)
}

/// Returns SEND DIAGNOSTIC or READ DEFECT DATA.
fn unit_itself(random: &mut Random) -> Request {
    if random.one_in(2) {
        let cdb = [0x1D, flags(random, &[0x04, 0x10, 0x20]), 0, 0, flags(random, &[0x04]), 0];
        return Request::new("SEND DIAGNOSTIC", &cdb).changing(Changes::State);
    }
    let bytes = allocation(random, 32);
    let [high, low] = (bytes as u16).to_be_bytes();
    let cdb = [0x37, 0, flags(random, &[0x08, 0x10, 0x05]), 0, 0, 0, 0, high, low, 0];
    Request::new("READ DEFECT DATA (10)", &cdb).reading(bytes)
}

fn prevent_allow(random: &mut Random) -> Request {
    let cdb = [0x1E, 0, 0, 0, random.below(4) as u8, 0];
    Request::new("PREVENT ALLOW MEDIUM REMOVAL", &cdb).changing(Changes::State)
}

fn copy_results(random: &mut Random) -> Request {
    let bytes = allocation(random, 255);
    let (name, action) = match random.below(4) {
        0 => ("RECEIVE COPY RESULTS, COPY STATUS", 0x00),
        1 => ("RECEIVE COPY RESULTS, OPERATING PARAMETERS", 0x03),
        2 => ("RECEIVE COPY RESULTS, another", [0x01, 0x04, 0x1F][random.below(3) as usize]),
        _ => ("RECEIVE COPY STATUS (LID4)", 0x05),
    };
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2]) = (0x84, action, if action == 0x03 { 0 } else { random.below(3) as u8 });
    cdb[10..14].copy_from_slice(&bytes.to_be_bytes());
    Request::new(name, &cdb).reading(bytes)
}

fn request_sense(random: &mut Random) -> Request {
    let bytes = allocation(random, 96);
    Request::new("REQUEST SENSE", &[0x03, flags(random, &[0x01]), 0, 0, bytes as u8, 0]).reading(bytes)
}
