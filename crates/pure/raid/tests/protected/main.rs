//! Protected arrays from outside: crashes at any instant, faulty disks, members that leave and return, and costs.

#![expect(clippy::single_range_in_vec_init, reason = "a rebuild takes a list of ranges, often of one")]

mod acknowledged_from_log;
mod bench;
mod bugs;
mod copying;
mod costs;
mod crash;
mod disk;
mod faults;
mod golden;
mod grow;
mod holes;
mod joining;
mod late;
mod oracle;
mod randomized;
mod refusals;
mod returns;
mod script;
