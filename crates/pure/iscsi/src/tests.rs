//! Both state machines, driven from outside: transcripts as text, properties over splits and mutations, hostile input.

mod connections;
mod data_in;
mod data_out;
mod digests;
mod exchanges;
mod fast_path;
mod hostile;
mod initiator;
mod joined;
mod login;
mod lossy;
mod ordering;
mod pair;
mod properties;
mod recovery;
mod rig;
mod sessions;
mod task_management;
