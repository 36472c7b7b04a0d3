//! Causes of failed authentication, in words for the operator.

/// Cause of a failed authentication. The initiator receives the status alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthFailure {
    /// RFC 7143 §12.1: the required method is not among AuthMethod, or the stage was left or skipped without it.
    #[error("it offers no method of AuthMethod that is taken here: CHAP has to be set up on both sides, or on none")]
    NoMethod,
    /// RFC 7143 §12.1.3, CHAP_A.
    #[error("it offers no hash function in CHAP_A that is allowed here")]
    NoAlgorithm,
    /// RFC 7143 §12.1.3, CHAP_N and CHAP_R.
    #[error("its CHAP name or its secret is another one (CHAP_N, CHAP_R)")]
    WrongCredentials,
    /// RFC 7143 §12.1.3, CHAP_I and CHAP_C.
    #[error("it does not ask us to prove ourselves, which it must here (CHAP_I, CHAP_C)")]
    NotMutual,
    /// RFC 7143 §12.1.3, CHAP_I and CHAP_C.
    #[error("it asks us to prove ourselves, and nothing is set that we could prove (CHAP_I, CHAP_C)")]
    MutualUnknown,
    /// RFC 7143 §9.2.1.
    #[error("it sent our own challenge back")]
    Reflected,
    /// RFC 7143 §12.1.
    #[error("its authentication keys came twice, out of order or malformed")]
    KeysMalformed,
}
