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

#[test]
fn run_leaves_nothing_behind() {
    for profile in Profile::ALL {
        // Every world of the run holds the plant.
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
