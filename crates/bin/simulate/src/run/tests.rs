use super::play;
use crate::{Profile, run};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

#[test]
fn run_of_a_seed_is_the_same_every_time_and_of_another_seed_another() {
    for profile in Profile::ALL {
        let [one, again, other] = [7, 7, 8].map(|seed| run(profile, seed, None));
        assert_eq!(one, again, "{profile}");
        assert_eq!(one.wrong, None);
        assert_ne!(one.digest, other.digest);
    }
}

/// Runs that revealed a defect of the data plane, with its description.
const FAULTS_FOUND: [(Profile, u64, &str); 5] = [
    (Profile::Disks, 127, "the torn last batch of the redo log counted, because one of its members could not be read"),
    (Profile::Disks, 7325, "the same, with two liars of five members"),
    (Profile::Disks, 4484, "a pool with a liar was not opened after a power cut"),
    (Profile::Disks, 10199, "a member that came back lacked what a command under way had left out"),
    (Profile::Misbehaving, 95, "the commit before an exchange asked only a sick member, and the pool stopped"),
];

#[test]
fn run_that_has_found_a_fault_passes() {
    for (profile, seed, fault) in FAULTS_FOUND {
        assert_eq!(run(profile, seed, None).wrong, None, "{profile} {seed}: {fault}");
    }
}

#[test]
fn run_leaves_nothing_behind() {
    for profile in Profile::ALL {
        // Every world of the run holds a reference to the plant.
        let plant: Rc<RefCell<Weak<_>>> = Rc::default();
        let tell = plant.clone();
        let outcome = play(7, None, async move |stage| {
            *tell.borrow_mut() = Rc::downgrade(&stage.plant);
            profile.play(stage).await
        });
        assert_eq!(outcome.wrong, None);
        assert_eq!(plant.borrow().strong_count(), 0, "{profile}");
    }
}
