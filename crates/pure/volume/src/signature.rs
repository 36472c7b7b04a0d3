//! Signatures of other systems at the head and tail of a disk.

/// Number of bytes examined at the head.
pub(crate) const HEAD_BYTES: usize = 256 << 10;
/// Number of bytes examined at the tail.
pub(crate) const TAIL_BYTES: usize = 128 << 10;

/// Signature: offset from the start, bytes, and description.
type Mark = (usize, &'static [u8], &'static str);

/// Signatures at the head; more specific ones come first.
const HEAD_MARKS: &[Mark] = &[
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"bluestore block device", "a Ceph BlueStore"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"\xfc\x4e\x2b\xa9", "a Linux md RAID member"),
    (4096, b"\xfc\x4e\x2b\xa9", "a Linux md RAID member"),
    (24, b"LVM2 001", "an LVM physical volume"),
    (536, b"LVM2 001", "an LVM physical volume"),
    (1048, b"LVM2 001", "an LVM physical volume"),
    (1560, b"LVM2 001", "an LVM physical volume"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache or bcachefs device"),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcache or bcachefs device"),
    (0x10034, b"ReIsEr2Fs", "a ReiserFS file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (4086, b"SWAPSPACE2", "Linux swap space"),
    (4086, b"SWAP-SPACE", "Linux swap space"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"ReFS\0", "a ReFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    // Last: many file systems have a boot sector with this signature as well.
    (510, b"\x55\xaa", "a partition table or boot sector (MBR)"),
];

/// Signatures at the tail; offsets count backwards from the end.
const TAIL_MARKS: &[Mark] = &[
    (512, b"EFI PART", "the copy of a partition table (GPT)"),
    (4096, b"EFI PART", "the copy of a partition table (GPT)"),
    (8192, b"\xfc\x4e\x2b\xa9", "a Linux md RAID member"),
    (65536, b"\xfc\x4e\x2b\xa9", "a Linux md RAID member"),
];

/// Uberblock area of a ZFS label, in which at least one uberblock is valid.
const ZFS_RING: std::ops::Range<usize> = 128 << 10..256 << 10;
const ZFS_MARKS: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];

/// Identifies the content of a disk by its first and last bytes; none when nothing is recognized.
pub(crate) fn recognise(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let starts = |bytes: &[u8], at: usize, mark: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let of_head = HEAD_MARKS.iter().find(|(at, mark, _)| starts(head, *at, mark));
    let of_zfs = || {
        // Uberblocks are 1 KiB or more apart, in the byte order of the system that wrote them.
        let slots = head.get(ZFS_RING)?.chunks(1024);
        let is_uberblock = |slot: &[u8]| ZFS_MARKS.iter().any(|mark| slot.starts_with(mark));
        slots.into_iter().any(is_uberblock).then_some("a ZFS pool member")
    };
    let of_tail = || {
        // A disk may be shorter than the offset of a signature.
        let back = |at: usize| tail.len().checked_sub(at);
        TAIL_MARKS.iter().find(|(at, mark, _)| back(*at).is_some_and(|at| starts(tail, at, mark)))
    };
    of_head.map(|mark| mark.2).or_else(of_zfs).or_else(|| of_tail().map(|mark| mark.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_every_mark_is_recognised_where_it_belongs() {
        for &(at, mark, what) in HEAD_MARKS {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise(&head, &[]), Some(what));
            head.rotate_right(1);
            assert_eq!(recognise(&head, &[]), None, "{what} one byte off");
        }
        for &(at, mark, what) in TAIL_MARKS {
            let mut tail = vec![0; TAIL_BYTES];
            let at = tail.len() - at;
            tail[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise(&[], &tail), Some(what));
        }
        let mut head = vec![0; HEAD_BYTES];
        head[200 << 10..(200 << 10) + 8].copy_from_slice(&ZFS_MARKS[0]);
        assert_eq!(recognise(&head, &[]), Some("a ZFS pool member"));
    }

    #[test]
    fn signature_of_a_blank_or_short_disk_is_none() {
        assert_eq!(recognise(&vec![0; HEAD_BYTES], &vec![0; TAIL_BYTES]), None);
        assert_eq!(recognise(&[0; 100], &[0; 3]), None);
        assert_eq!(recognise(&[], &[]), None);
    }
}
