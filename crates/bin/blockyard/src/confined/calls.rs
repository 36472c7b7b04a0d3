//! System calls of the daemon: seccomp filters that refuse all others with EPERM.
//!
//! The list holds the calls of the standard library, tokio, the C library and the engine; `--test cli` runs under it.
//! To find a missing call: `strace -f -e fault= -Z -p PID`, or run with `--no-sandbox` and compare
//! (docs/operate/security.md).

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are allowed with any arguments.
const ALLOWED: &[i64] = &[
    // Files that are open, and files that Landlock allows.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // Waiting and timers.
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_membarrier,
    // Threads and signals.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Identity of the process and facts of the system.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_times,
    // Sockets that are open; `socket` itself is restricted below.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    // For the second filter, which then forbids this call.
    libc::SYS_seccomp,
];

/// Legacy forms of the same calls, which exist only on this architecture.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[i64] = &[];

/// Allowed `ioctl` requests to devices, files and sockets: block sizes, MTU, terminal attributes, blocking mode.
const IOCTLS: [u64; 12] = [
    0x1268,      // BLKSSZGET
    0x127b,      // BLKPBSZGET
    0x8008_1272, // BLKGETSIZE64
    0x5401,      // TCGETS
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x5421,      // FIONBIO
    0x541b,      // FIONREAD
    0x5411,      // TIOCOUTQ, SIOCOUTQ
    0x5451,      // FIOCLEX
    0x8921,      // SIOCGIFMTU
    0x8913,      // SIOCGIFFLAGS
];

/// Allowed `prctl` options: names of threads and memory, and queries of the process's own limits.
const PRCTLS: [u64; 8] = [
    3,           // PR_GET_DUMPABLE
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    21,          // PR_GET_SECCOMP
    23,          // PR_CAPBSET_READ
    38,          // PR_SET_NO_NEW_PRIVS
    39,          // PR_GET_NO_NEW_PRIVS
    0x5356_4d41, // PR_SET_VMA
];

/// Restricts all threads to the calls of the list. Called while there is one thread.
///
/// *Errors*: the kernel has no seccomp filters, or does not let this process use them.
pub(super) fn restrict() -> Result<(), String> {
    // Of several filters the kernel applies the strictest verdict, so later ones can only forbid more.
    apply(allowed()?, SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow)?;
    // The flags of `clone3` are in memory, where no filter can read them. With ENOSYS the C library falls back to
    // `clone`, whose flags are checked.
    apply(any(&[libc::SYS_clone3]), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))
}

/// Forbids all threads to create a ring, to register anything with one, or to add a filter.
pub(super) fn seal() -> Result<(), String> {
    let ended = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_seccomp];
    apply(any(&ended), SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.cast_unsigned()))
}

fn apply(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> Result<(), String> {
    let architecture = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture).map_err(|error| error.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn any(calls: &[i64]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

fn allowed() -> Result<Rules, String> {
    // `execve` is absent on purpose: the helper runs the programs that the daemon needs.
    let mut rules = any(ALLOWED);
    rules.extend(any(ALLOWED_OLD));
    // Each entry: index of the argument, mask, required value.
    let sockets: Vec<Vec<(u8, u64, u64)>> = vec![
        vec![(0, !0, libc::AF_UNIX as u64)],
        vec![(0, !0, libc::AF_INET as u64), (1, 0xf, libc::SOCK_STREAM as u64)],
        // Datagrams are for the resolver of the C library.
        vec![(0, !0, libc::AF_INET as u64), (1, 0xf, libc::SOCK_DGRAM as u64)],
        vec![(0, !0, libc::AF_INET6 as u64), (1, 0xf, libc::SOCK_STREAM as u64)],
        vec![(0, !0, libc::AF_INET6 as u64), (1, 0xf, libc::SOCK_DGRAM as u64)],
        // Links and addresses of the machine: protocol 0 is NETLINK_ROUTE.
        vec![(0, !0, libc::AF_NETLINK as u64), (2, !0, 0)],
    ];
    let (write, execute) = (libc::PROT_WRITE as u64, libc::PROT_EXEC as u64);
    // Either writable or executable, never both.
    let memory = vec![vec![(2, write, 0)], vec![(2, execute, 0)]];
    // Without CLONE_THREAD the call would create a process.
    let thread = libc::CLONE_THREAD as u64;
    // Signals only to this process: one to the helper would end it.
    let ended = u64::from(std::process::id());
    for (call, conditions) in [
        (libc::SYS_socket, sockets),
        (libc::SYS_socketpair, vec![vec![(0, !0, libc::AF_UNIX as u64)]]),
        (libc::SYS_mmap, memory.clone()),
        (libc::SYS_mprotect, memory),
        (libc::SYS_clone, vec![vec![(0, thread, thread)]]),
        // A panic or an abort signals the process itself.
        (libc::SYS_tgkill, vec![vec![(0, !0, ended)]]),
        // Process ID 0 is the process itself.
        (libc::SYS_prlimit64, vec![vec![(0, !0, 0)]]),
        (libc::SYS_ioctl, IOCTLS.map(|request| vec![(1, !0, request)]).into()),
        (libc::SYS_prctl, PRCTLS.map(|option| vec![(0, !0, option)]).into()),
    ] {
        let judged: Result<Vec<SeccompRule>, String> = conditions.into_iter().map(rule).collect();
        rules.insert(call, judged?);
    }
    Ok(rules)
}

/// Combines conditions, each on a masked argument, into one rule. Arguments are 32-bit numbers: the kernel ignores
/// their upper half.
fn rule(conditions: Vec<(u8, u64, u64)>) -> Result<SeccompRule, String> {
    let conditions: Result<Vec<_>, _> = conditions
        .into_iter()
        .map(|(argument, mask, value)| {
            let mask = SeccompCmpOp::MaskedEq(mask & u64::from(u32::MAX));
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, mask, value)
        })
        .collect();
    conditions.and_then(SeccompRule::new).map_err(|error| error.to_string())
}
