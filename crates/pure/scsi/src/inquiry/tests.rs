use crate::rig::*;
use crate::*;

fn inquiry(vital: bool, page: u8, allocation: u16) -> [u8; 6] {
    let [high, low] = allocation.to_be_bytes();
    [0x12, u8::from(vital), page, high, low, 0]
}

fn page(unit: &LogicalUnit<Bench>, page: u8) -> Vec<u8> {
    let data = ask(unit, &inquiry(true, page, 1024));
    assert_eq!((data[0], data[1]), (0, page));
    assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4, "the page says its length");
    data
}

#[test]
fn inquiry_standard_data_says_disk_names_and_versions() {
    let data = ask(&unit(), &inquiry(false, 0, 512));
    assert_eq!(data[..8], [0x00, 0x00, 0x06, 0x12, 91, 0x38, 0x10, 0x02]);
    assert_eq!(&data[8..36], b"BLOCKYRDvolume          0.1 ");
    assert_eq!(data[36..58], [0; 22]);
    assert_eq!(data[58..66], [0x00, 0xA0, 0x04, 0x60, 0x04, 0xC0, 0x09, 0x60]);
    assert_eq!(data[66..], [0; 30]);
}

#[test]
fn inquiry_is_cut_at_every_allocation_length() {
    let unit = unit();
    let whole = ask(&unit, &inquiry(false, 0, 512));
    for allocation in 0..=whole.len() + 4 {
        let data = ask(&unit, &inquiry(false, 0, allocation as u16));
        assert_eq!(data, whole[..allocation.min(whole.len())]);
    }
}

#[test]
fn inquiry_for_a_page_that_is_not_there_points_at_the_page_code() {
    let unit = unit();
    assert_eq!(pointed(&unit, &inquiry(false, 1, 96), &[]), (2, None));
    assert_eq!(pointed(&unit, &inquiry(true, 0xC0, 96), &[]), (2, None));
    // CMDDT of SPC-2.
    assert_eq!(pointed(&unit, &[0x12, 2, 0, 0, 96, 0], &[]), (1, Some(1)));
}

#[test]
fn vpd_list_is_ascending_and_every_page_in_it_is_there() {
    let unit = unit();
    let list = page(&unit, 0x00);
    assert_eq!(list[4..], [0x00, 0x80, 0x83, 0x86, 0x8F, 0xB0, 0xB1, 0xB2]);
    for &code in &list[4..] {
        page(&unit, code);
    }
}

#[test]
fn vpd_serial_number_is_the_units() {
    assert_eq!(&page(&unit(), 0x80)[4..], b"5f1e0001");
}

#[test]
fn vpd_identification_names_unit_port_and_device() {
    let unit = unit();
    let data = page(&unit, 0x83);
    let mut designators = Vec::new();
    let mut rest = &data[4..];
    while let [set, kind, 0, length, behind @ ..] = rest {
        let (designator, next) = behind.split_at(usize::from(*length));
        designators.push((*set, *kind, designator));
        rest = next;
    }
    let vendor_based: &[u8] = b"BLOCKYRDvolume          5f1e0001";
    let mut uuid = vec![0x10, 0];
    uuid.extend([0xAB; 16]);
    let expected: [(u8, u8, &[u8]); 8] = [
        (0x01, 0x03, &identity().naa),
        (0x02, 0x01, vendor_based),
        (0x03, 0x08, b"naa.651EF00102030405060708090A0B0C0D\0\0\0\0"),
        (0x01, 0x0A, &uuid),
        (0x51, 0x94, &[0, 0, 0, 1]),
        (0x51, 0x95, &[0, 0, 0, 1]),
        (0x53, 0x98, b"iqn.2026-01.example:disk,t,0x0001\0\0\0"),
        (0x53, 0xA8, b"iqn.2026-01.example:disk\0\0\0\0"),
    ];
    assert_eq!(designators, expected);
    // The other nexus uses the other port of the same unit.
    let other = good(run(&unit, OTHER, &inquiry(true, 0x83, 1024), &[]));
    assert_eq!(other[4..100], data[4..100]);
    assert_ne!(other, data);
}

#[test]
fn vpd_extended_inquiry_names_the_task_attributes() {
    let data = page(&unit(), 0x86);
    assert_eq!((data.len(), &data[4..8]), (64, &[0x00, 0x07, 0x00, 0x00][..]));
}

#[test]
fn vpd_block_limits_are_those_that_are_kept() {
    let unit = unit_with(Options { provisioning: Provisioning::Thin, ..Options::default() });
    let data = page(&unit, 0xB0);
    let number = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(data.len(), 64);
    assert_eq!(data[4..8], [0x01, 255, 0, 128], "WSNZ, COMPARE AND WRITE, granularity of a stripe");
    assert_eq!((number(8), number(12), number(16)), (8192, 8192, 0), "maximum, optimum, PRE-FETCH");
    assert_eq!((number(20), number(24)), (1 << 20, 256), "UNMAP blocks and descriptors");
    assert_eq!((number(28), number(32)), (8, 0x8000_0000), "UNMAP granularity and alignment");
    assert_eq!(data[36..44], 65_535_u64.to_be_bytes(), "WRITE SAME");
    assert_eq!((number(44), &data[48..]), (8, &[0; 16][..]), "atomic writes of any alignment");
}

#[test]
fn vpd_pages_of_a_device_that_tells_its_space_are_those_of_a_thin_one() {
    // The options say fully provisioned; the device overrides them. Granules of 16 KiB.
    let unit = thin_unit(32, 4);
    assert_eq!(page(&unit, 0xB0)[28..36], [0, 0, 0, 32, 0x80, 0, 0, 0], "UNMAP granularity and alignment");
    assert_eq!(page(&unit, 0xB0)[20..28], [0, 0x10, 0, 0, 0, 0, 1, 0], "UNMAP blocks and descriptors");
    assert_eq!(page(&unit, 0xB2)[4..], [11, 0xE4, 2, 0], "sets of 1 MiB; LBPU, LBPWS, LBPWS10, LBPRZ; thin");
    let mut capacity = [0; 16];
    (capacity[0], capacity[1], capacity[13]) = (0x9E, 0x10, 32);
    assert_eq!(ask(&unit, &capacity)[14], 0xC0, "LBPME and LBPRZ");
    assert!(judge(Cdb::new(&cdb10(0x42, 0, 0, 24)), &unit.shape()).is_ok());
}

#[test]
fn vpd_block_limits_without_unmap_have_none() {
    assert_eq!(page(&unit(), 0xB0)[20..36], [0; 16]);
}

#[test]
fn vpd_characteristics_say_whether_it_spins() {
    assert_eq!(page(&unit(), 0xB1)[4..6], [0, 1]);
    let spinning = unit_with(Options { rotational: true, ..Options::default() });
    assert_eq!(page(&spinning, 0xB1)[4..6], [0, 0]);
}

#[test]
fn vpd_provisioning_agrees_with_read_capacity() {
    for (provisioning, zeroes, expected, flags) in [
        (Provisioning::Full, true, [0, 0x00, 0, 0], 0x00),
        (Provisioning::Resource, false, [0, 0xE0, 1, 0], 0x80),
        (Provisioning::Thin, true, [0, 0xE4, 2, 0], 0xC0),
    ] {
        let unit = unit_with(Options { provisioning, ..Options::default() });
        let mut geometry = unit.device().geometry.get();
        geometry.discard_zeroes = zeroes;
        unit.device().geometry.set(geometry);
        assert_eq!(page(&unit, 0xB2)[4..], expected);
        let mut capacity = [0; 16];
        (capacity[0], capacity[1], capacity[13]) = (0x9E, 0x10, 32);
        assert_eq!(ask(&unit, &capacity)[14], flags);
    }
}

#[test]
fn identity_that_is_too_long_or_not_ascii_stays_within_its_fields() {
    let mut long = identity();
    (long.vendor, long.product, long.revision) = ("A".repeat(99), "é".repeat(99), "\n".into());
    long.serial = "s".repeat(300);
    let unit = LogicalUnit::new(Bench::new(512, 8), long, Options::default());
    let data = ask(&unit, &inquiry(false, 0, 96));
    assert_eq!(&data[8..36], b"AAAAAAAA                    ");
    assert_eq!(page(&unit, 0x80).len(), 4 + 64);
    page(&unit, 0x83);
}
