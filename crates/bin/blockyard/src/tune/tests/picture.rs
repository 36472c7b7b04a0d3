//! Picture of a machine as files: two sockets of eight cores, an NVMe disk on the first, SAS disks and an ixgbe card on
//! the second.

use crate::tune::{Array, Root};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

pub(super) struct Picture {
    folder: TempDir,
    pub root: Root,
    pub array: Array,
}

const MACHINE: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-15\n"),
    ("sys/devices/system/cpu/isolated", "7\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors", "performance powersave\n"),
    ("sys/devices/system/cpu/cpuidle/current_governor", "haltpoll\n"),
    ("sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n"),
    ("sys/devices/system/node/node0/cpulist", "0-7\n"),
    ("sys/devices/system/node/node1/cpulist", "8-15\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/sys/kernel/osrelease", "6.1.0-42-amd64\n"),
    ("proc/sys/kernel/io_uring_disabled", "2\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/swaps", "Filename Type Size Used Priority\n/dev/sdz2 partition 8388604 0 -2\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n"),
    ("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno bbr\n"),
    ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr cubic\n"),
    ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
    ("proc/sys/net/ipv4/tcp_mtu_probing", "0\n"),
    ("proc/sys/net/ipv4/tcp_sack", "1\n"),
    ("proc/sys/net/core/netdev_budget", "300\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/core/busy_read", "0\n"),
    ("proc/sys/net/core/somaxconn", "128\n"),
    // Packets, drops, squeezes: more than one squeeze in ten thousand packets, and no drop.
    ("proc/net/softnet_stat", "0000ffff 00000000 00000100 0\n00001000 00000000 00000010 0\n"),
    ("proc/4711/status", "Name:\tblockyard\nCpus_allowed_list:\t0-15\n"),
    (
        "proc/4711/limits",
        "Limit Soft Hard Units\nMax locked memory         8388608              8388608              bytes\n",
    ),
    ("proc/4711/comm", "blockyard\n"),
    ("dev/nvme0n1", ""),
    ("dev/sda", ""),
    ("dev/sdb", ""),
    ("dev/sdb3", ""),
    ("dev/sdz", ""),
    ("dev/dm-0", ""),
    ("srv/disk.img", ""),
    ("sys/devices/nvme0n1/queue/scheduler", "none [mq-deadline]\n"),
    ("sys/devices/nvme0n1/queue/nr_requests", "1023\n"),
    ("sys/devices/nvme0n1/queue/max_sectors_kb", "128\n"),
    ("sys/devices/nvme0n1/queue/max_hw_sectors_kb", "128\n"),
    ("sys/devices/nvme0n1/queue/read_ahead_kb", "128\n"),
    ("sys/devices/nvme0n1/queue/rq_affinity", "1\n"),
    ("sys/devices/nvme0n1/queue/nomerges", "0\n"),
    ("sys/devices/nvme0n1/queue/add_random", "0\n"),
    ("sys/devices/nvme0n1/queue/write_cache", "write back\n"),
    ("sys/devices/nvme0n1/queue/wbt_lat_usec", "2000\n"),
    ("sys/devices/nvme0n1/queue/rotational", "0\n"),
    ("sys/devices/nvme0n1/wwid", "eui.0025385b71b00001\n"),
    ("sys/devices/nvme0n1/device/device/numa_node", "0\n"),
    ("sys/devices/nvme0n1/device/device/msi_irqs/50", "msix\n"),
    ("sys/devices/nvme0n1/device/device/msi_irqs/51", "msix\n"),
    ("proc/irq/50/nvme0q1/x", ""),
    ("proc/irq/50/effective_affinity_list", "0\n"),
    ("proc/irq/51/nvme0q2/x", ""),
    ("proc/irq/51/effective_affinity_list", "0\n"),
    ("sys/class/net/eth2/mtu", "1500\n"),
    ("sys/class/net/eth2/speed", "10000\n"),
    ("sys/class/net/eth2/address", "52:54:00:12:34:56\n"),
    ("sys/class/net/eth2/device/numa_node", "1\n"),
    ("sys/class/net/eth2/queues/rx-0/rps_cpus", "0000\n"),
    ("sys/class/net/eth2/queues/rx-1/rps_cpus", "0000\n"),
    ("sys/class/net/eth2/queues/rx-2/rps_cpus", "0000\n"),
    ("sys/class/net/eth2/queues/rx-3/rps_cpus", "0000\n"),
    ("sys/class/net/eth2/statistics/rx_missed_errors", "1234\n"),
    ("sys/class/net/eth2/statistics/rx_fifo_errors", "0\n"),
    (
        "ethtool/-l/eth2",
        "Channel parameters for eth2:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t63\nCurrent hardware settings:\nRX:\t\tn/a\nCombined:\t4\n",
    ),
    (
        "ethtool/-g/eth2",
        "Ring parameters for eth2:\nPre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\nCurrent hardware settings:\nRX:\t\t512\nTX:\t\t512\n",
    ),
    (
        "ethtool/-k/eth2",
        "Features for eth2:\nrx-checksumming: on\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\ngeneric-receive-offload: off\n",
    ),
    ("proc/irq/70/eth2-TxRx-0/x", ""),
    ("proc/irq/71/eth2-TxRx-1/x", ""),
    ("proc/irq/72/eth2-TxRx-2/x", ""),
    ("proc/irq/73/eth2-TxRx-3/x", ""),
    ("proc/irq/74/eth2-misc/x", ""),
];

/// Attributes that both rotational disks share.
const TURNING: [(&str, &str); 10] = [
    ("queue/scheduler", "[none] mq-deadline kyber\n"),
    ("queue/nr_requests", "256\n"),
    ("queue/max_hw_sectors_kb", "16383\n"),
    ("queue/read_ahead_kb", "128\n"),
    ("queue/rq_affinity", "1\n"),
    ("queue/nomerges", "0\n"),
    ("queue/write_cache", "write through\n"),
    ("queue/wbt_lat_usec", "75000\n"),
    ("queue/rotational", "1\n"),
    ("device/numa_node", "1\n"),
];

impl Picture {
    pub(super) fn two_sockets() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path());
        let disks =
            ["/dev/disk/by-id/nvme-eui.0025385b71b00001", "/dev/sda", "/dev/sdb3", "/srv/disk.img", "/dev/gone"];
        let array =
            Array { disks: disks.map(Into::into).to_vec(), interfaces: vec!["eth2".to_owned()], pid: Some(4711) };
        let picture = Self { folder, root, array };
        MACHINE.iter().for_each(|(path, text)| picture.put(path, text));
        for disk in ["sda", "sdb", "sdz"] {
            TURNING.iter().for_each(|(path, text)| picture.put(&format!("sys/devices/{disk}/{path}"), text));
            let (size, random) = if disk == "sda" { ("512\n", "1\n") } else { ("1280\n", "0\n") };
            picture.put(&format!("sys/devices/{disk}/queue/max_sectors_kb"), size);
            picture.put(&format!("sys/devices/{disk}/queue/add_random"), random);
        }
        picture.put("sys/devices/sda/device/wwid", "naa.5000c500a1b2c3d4\n");
        picture.put("sys/devices/sdb/sdb3/partition", "3\n");
        picture.put("sys/devices/dm-0/slaves/sda/x", "");
        for name in ["nvme0n1", "sda", "sdb", "sdz", "dm-0"] {
            picture.link(&format!("sys/block/{name}"), &format!("../devices/{name}"));
            picture.link(&format!("sys/class/block/{name}"), &format!("../../devices/{name}"));
        }
        picture.link("sys/class/block/sdb3", "../../devices/sdb/sdb3");
        picture.link("dev/disk/by-id/nvme-eui.0025385b71b00001", "../../nvme0n1");
        picture.link("dev/mapper/mpatha", "../dm-0");
        for cpu in 0..16 {
            picture.put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), "powersave\n");
        }
        for irq in 70..75 {
            picture.put(&format!("sys/class/net/eth2/device/msi_irqs/{irq}"), "msix\n");
            picture.put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-15\n");
            picture.put(&format!("proc/irq/{irq}/effective_affinity_list"), "0\n");
        }
        picture
    }

    /// Writes a file of the picture.
    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        symlink(to, path).expect("it is linked");
    }
}
