//! Access to logical units that are not mapped to the host.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::play;
use model::event;
use shard::World;
use std::time::Duration;

/// Reported once per host and LUN, then by count. Discovery of LUNs is not reported.
#[test]
fn lun_that_a_host_does_not_see_is_told_with_the_rule_and_what_would_show_it() {
    play(71, async |sim, array| {
        let mut host = Host::login(sim, &Login::of(OPEN, 1)).await;
        host.address(7);
        assert!(host.ask(&[0x12, 0, 0, 0, 96, 0]).await.is_ok(), "INQUIRY says that nothing is there");
        for _ in 0..3 {
            assert_eq!(host.try_read(0).await, Err((5, 0x25, 0)));
        }
        let told = array.events().await;
        assert_eq!(
            (told.len(), told[0].code),
            (1, event::LUN_HIDDEN),
            "of what it looked for nothing is told: {told:?}"
        );
        let sentence = &told[0].sentence;
        for words in ["LUN 7 of iqn.", "READ (10)", "no volume is mapped to it with that LUN", "--target t --lun 7"] {
            assert!(sentence.contains(words), "{words}: {sentence}");
        }
        sim.sleep(Duration::from_secs(31)).await;
        let told: Vec<_> = array.events().await.into_iter().filter(|event| event.code == event::LUN_HIDDEN).collect();
        assert!(told.len() == 1 && told[0].sentence.ends_with("2 more in 30 s"), "{told:?}");
    });
}

/// The write is refused before its data is requested, and reported all the same.
#[test]
fn write_to_a_lun_that_a_host_does_not_see_is_told() {
    play(72, async |sim, array| {
        let mut host = Host::login(sim, &Login::of(OPEN, 1)).await;
        host.address(7);
        assert_eq!(host.try_write(0, 1).await, Err((5, 0x25, 0)));
        let told = array.events().await;
        assert!(told.len() == 1 && told[0].code == event::LUN_HIDDEN, "{told:?}");
        assert!(told[0].sentence.contains("WRITE (10)"), "{}", told[0].sentence);
    });
}
