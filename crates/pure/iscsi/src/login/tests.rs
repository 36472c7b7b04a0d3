//! Logins as transcripts, the matrix of authentication settings, and hostile peers.

mod hostile;
mod initiator;
mod matrix;
mod rig;
mod transcripts;
