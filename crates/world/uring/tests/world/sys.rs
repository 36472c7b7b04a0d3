//! System calls of the tests that need `unsafe`.

/// Limits this process to `count` open descriptors.
pub(crate) fn limit_descriptors(count: u64) {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: the pointer is to a live value of the right type.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(set, 0);
}

/// Makes the system calls of io_uring fail with EPERM in all threads started from now on.
pub(crate) fn forbid_io_uring() {
    let numbers = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let forbidden = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = vec![step(load, 0, 0)];
    for (at, number) in (0u8..).zip(numbers) {
        // Jumps past the other comparisons and the "allow" to the "forbid".
        filter.push(step(jump, 3 - at, number as u32));
    }
    filter.push(step(answer, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(step(answer, 0, forbidden));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program points to `filter`, which lives until both calls have returned.
    let (unprivileged, filtered) = unsafe {
        let unprivileged = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        (unprivileged, libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    };
    assert_eq!((unprivileged, filtered), (0, 0));
}
