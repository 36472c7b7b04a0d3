//! Logins as transcripts, the matrix of authentication, and what hostile peers try.

mod hostile;
mod initiator;
mod matrix;
mod rig;
mod transcripts;
