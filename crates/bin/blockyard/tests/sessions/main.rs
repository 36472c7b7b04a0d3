//! Sessions of our own initiator with the data plane, both in the simulator: identity of sessions, and effect of a
//! login on earlier sessions.
//!
//! *Source*: RFC 7143 §6.3.5.

// The future of a SCSI command nests a type for each device layer on its path.
#![recursion_limit = "256"]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborted;
mod absent;
mod array;
mod auth;
mod bounds;
mod care;
mod connections;
mod copies;
mod encrypted;
mod errors;
mod families;
mod former;
mod growth;
mod hidden;
mod host;
mod log;
mod luns;
mod night;
mod node;
mod offload;
mod outdated;
mod overwriting;
mod owners;
mod parts;
mod policies;
mod portals;
mod read_only;
mod recording;
mod remote;
mod reservations;
mod sanitize;
mod silent;
mod tasks;
mod traces;

use array::{Array, DISK_BLOCKS, OPEN, initiator};
use block::Buf;
use host::{Host, Login, REPORTED_LUNS_CHANGED};
use iscsi::initiator::DataIn;
use iscsi::pdu::{AsyncEvent, Residual, TaskFunction, TaskFunctionOutcome};
use model::{ProofLack, RefusedWhy, SessionEnd, SessionKind, SessionReport, code, event};
use shard::World;
use sim::{DiskFaults, Sim};
use std::time::Duration;

/// BUS DEVICE RESET FUNCTION OCCURRED.
const RESET: (u8, u8) = (0x29, 3);
/// Duration of a write while the disk is slow: below the timeout of a silent initiator.
const SLOW: Duration = Duration::from_secs(5);

/// Runs `test` with one shard, and with three that connections are dealt to.
fn play(seed: u64, test: impl AsyncFn(&Sim, &Array) + Copy + 'static) {
    for shards in [1, 3] {
        Sim::new(seed).run(async move |sim| {
            let array = Array::start(&sim, shards).await;
            test(&sim, &array).await;
        });
    }
}

/// Returns the reports of sessions of `initiator`.
async fn sessions_of(array: &Array, initiator: &str) -> Vec<SessionReport> {
    array.sessions().await.into_iter().filter(|session| session.initiator == initiator).collect()
}

#[test]
fn session_report_says_how_both_sides_proved_themselves() {
    play(1, async |sim, array| {
        let _hosts = [
            Host::login(sim, &Login::of("web", 0)).await,
            Host::login(sim, &Login { mutual: false, ..Login::of("web", 1) }).await,
            Host::login(sim, &Login::of(OPEN, 0)).await,
        ];
        let told = array.sessions().await.into_iter();
        let told = told.map(|session| (session.authentication, session.chap_user, session.mutual));
        let web = Some("web".to_owned());
        let expected = [
            ("CHAP SHA3-256".to_owned(), web.clone(), true),
            ("CHAP SHA3-256".to_owned(), web, false),
            ("none".to_owned(), None, false),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    });
}

#[test]
fn login_that_is_refused_is_an_event_that_names_who_asked() {
    play(6, async |sim, array| {
        let stranger = Login { host: "stranger", ..Login::of(OPEN, 0) };
        Host::refused(sim, &stranger).await;
        let told = array.events().await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].code, told[0].subject.name.clone()), (event::LOGIN_REFUSED, stranger.initiator()));
        assert!(told[0].sentence.contains("10.0.0.1") && told[0].sentence.contains("0202"), "{}", told[0].sentence);
    });
}

#[test]
fn initiator_that_was_refused_is_listed_with_the_reason_until_it_comes_in() {
    play(7, async |sim, array| {
        let stranger = Login { host: "stranger", ..Login::of(OPEN, 0) };
        for _ in 0..3 {
            Host::refused(sim, &stranger).await;
        }
        let elsewhere = Login { target: Some("iqn.2026-11.io.blockyard:none"), ..Login::of(OPEN, 0) };
        Host::refused(sim, &elsewhere).await;
        let unproven = Login { host: "web", unproven: true, ..Login::of(OPEN, 1) };
        Host::refused(sim, &unproven).await;
        let told = array.refused().await;
        let error =
            "it offers no method of AuthMethod that is taken here: CHAP has to be set up on both sides, or on none";
        let (host, error, cause) = ("web".parse().unwrap(), error.to_owned(), ProofLack::Method);
        let whys: Vec<_> =
            told.iter().map(|login| (login.initiator.clone(), login.reason.clone(), login.count)).collect();
        assert_eq!(
            whys,
            [
                (Some(unproven.initiator()), RefusedWhy::AuthenticationFailed { host, error, cause }, 1),
                (Some(elsewhere.initiator()), RefusedWhy::UnknownTarget, 1),
                (Some(stranger.initiator()), RefusedWhy::UnknownInitiator, 3),
            ]
        );
        assert!(told[2].remedy().contains(&stranger.initiator()), "{told:?}");
        let _in = Host::login(sim, &Login::of("web", 1)).await;
        assert_eq!(array.refused().await.len(), 2, "who came in is off the list");
    });
}

#[test]
fn session_that_is_reinstated_ends_with_its_commands_before_the_new_one_is_served() {
    play(2, async |sim, array| {
        let mut old = Host::login(sim, &Login::of("web", 7)).await;
        old.take_attention().await;
        old.write(0, 0x11).await;
        let old_tsih = array.sessions().await[0].id;
        array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
        let begun = array.disk.counts().writes;
        old.submit_write(0, 0x22).await;
        while array.disk.counts().writes == begun {
            sim.sleep(Duration::from_millis(1)).await;
        }
        let writing_since = sim.now();

        let mut new = Host::login(sim, &Login::of("web", 7)).await;
        assert!(sim.now().since(writing_since) < SLOW, "the login itself waits for nobody");
        new.take_attention().await;
        assert!(sim.now().since(writing_since) >= SLOW, "it was served while the old session's write was under way");
        assert_eq!(array.disk.content(0..512), [0x22; 512], "a write that was begun is not left half-way");
        assert_eq!(new.read(0).await, [0x22; 512]);

        let sessions = sessions_of(array, &Login::of("web", 7).initiator()).await;
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_ne!(sessions[0].id, old_tsih);
        let heard = old.until_closed().await;
        assert!(heard.is_empty(), "the old session's command ends without further notice: {heard:?}");
    });
}

#[test]
fn session_that_is_reinstated_leaves_no_unit_attention_behind() {
    play(3, async |sim, array| {
        let mut old = Host::login(sim, &Login::of("web", 7)).await;
        old.take_attention().await;
        array.hide_the_second_volume().await;
        let mut new = Host::login(sim, &Login::of("web", 7)).await;
        new.take_attention().await;
        assert_eq!(new.test_unit_ready().await, None, "what the old nexus was not told yet is gone with it");
        old.until_closed().await;

        // The same without a new login: the attention that was pending.
        array.show_the_second_volume().await;
        assert_eq!(new.test_unit_ready().await, Some(REPORTED_LUNS_CHANGED));
    });
}

#[test]
fn session_is_ended_only_by_its_own_initiator_isid_and_target() {
    play(4, async |sim, array| {
        let mut first = Host::login(sim, &Login::of("web", 7)).await;
        first.take_attention().await;
        let mut others = [
            Host::login(sim, &Login::of("other", 7)).await,
            Host::login(sim, &Login::of("web", 8)).await,
            Host::login(sim, &Login { target: None, ..Login::of("web", 7) }).await,
        ];
        for other in &mut others[..2] {
            other.take_attention().await;
        }
        first.write(DISK_BLOCKS - 1, 0x33).await;
        let sessions = array.sessions().await;
        assert_eq!(sessions.len(), 4, "{sessions:?}");
        assert_eq!(sessions.iter().filter(|session| session.kind == SessionKind::Discovery).count(), 1);
        assert_eq!(others[0].read(DISK_BLOCKS - 1).await, [0x33; 512]);
    });
}

#[test]
fn session_that_is_reinstated_again_and_again_leaves_one() {
    play(5, async |sim, array| {
        array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
        let mut hosts = Vec::new();
        for fill in 1..=4 {
            let mut host = Host::login(sim, &Login::of("web", 7)).await;
            if fill == 1 {
                host.take_attention().await;
            }
            host.submit_write(0, fill).await;
            sim.sleep(Duration::from_millis(100)).await;
            hosts.push(host);
        }
        let mut last = hosts.pop().unwrap();
        // Those in between were ended before they were served, so only the first has written anything; the last one's
        // own write met the attention of every new nexus.
        last.wait_for_answers().await;
        assert_eq!(last.read(0).await, [1; 512]);
        assert_eq!(array.sessions().await.len(), 1);
        for mut host in hosts {
            host.until_closed().await;
        }
    });
}

#[test]
fn session_is_shown_with_its_window_and_how_long_its_commands_took() {
    play(8, async |sim, array| {
        let mut host = Host::login(sim, &Login::of("web", 1)).await;
        host.take_attention().await;
        let id = array.sessions().await[0].id;
        let before = array.session(id).await.window.unwrap();
        array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
        host.write(0, 1).await;
        array.disk.set_faults(DiskFaults::default());
        for block in 0..10 {
            host.read(block).await;
        }
        let told = array.session(id).await;
        let after = told.window.unwrap();
        assert_eq!(after.exp_cmd_sn, before.exp_cmd_sn + 11);
        assert_eq!(after.max_cmd_sn - after.exp_cmd_sn, before.max_cmd_sn - before.exp_cmd_sn);
        assert_eq!((told.session.mutual, told.session.luns.as_slice()), (true, &[0, 1][..]));
        for latencies in [told.latencies, array.latencies().await] {
            let of = |name: &str| latencies.iter().find(|one| one.operation == name).unwrap();
            assert_eq!((of("READ (10)").commands, of("WRITE (10)").commands), (10, 1));
            let slow = u64::try_from(SLOW.as_micros()).unwrap();
            assert!(of("WRITE (10)").longest_us >= slow && of("READ (10)").longest_us < slow, "{latencies:?}");
        }
    });
}

#[test]
fn session_that_is_killed_may_log_out_first_and_is_cut_off_when_it_does_not() {
    play(9, async |sim, array| {
        assert_eq!(array.end_session(77, true).await.unwrap_err().code, code::SESSION_UNKNOWN);
        let mut polite = Host::login(sim, &Login::of("web", 1)).await;
        polite.take_attention().await;
        let id = array.sessions().await[0].id;
        let (ended, within) =
            futures_util::future::join(array.end_session(id, false), polite.log_out_when_asked()).await;
        assert_eq!((ended.unwrap(), within), (SessionEnd::LoggedOut, 5));

        for now in [false, true] {
            let mut deaf = Host::login(sim, &Login::of("web", 2)).await;
            deaf.take_attention().await;
            let (id, since) = (array.sessions().await[0].id, sim.now());
            assert_eq!(array.end_session(id, now).await.unwrap(), SessionEnd::Dropped);
            let took = sim.now().since(since).as_secs();
            assert!(if now { took == 0 } else { took == 4 }, "{took} s");
            assert_eq!(deaf.until_closed().await.len(), usize::from(!now), "it was asked, or was not");
            assert!(array.sessions().await.is_empty());
        }
        assert!(Host::is_let_in(sim, &Login::of("web", 2)).await, "it may log in again");
    });
}

#[test]
fn command_in_the_wrong_direction_moves_nothing_and_says_so() {
    play(12, async |sim, _| {
        let mut host = Host::login(sim, &Login::of("web", 1)).await;
        host.take_attention().await;
        host.write(0, 7).await;
        let inquiry = [0x12, 0, 0, 0, 96, 0];
        // Data for a READ and others is not accepted.
        for lun in [0, 1, 77] {
            host.address(lun);
            for cdb in
                [&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &inquiry, &[0; 6], &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]]
            {
                let (status, residual) = host.residual_of(cdb, Some(9), DataIn::None).await;
                assert_eq!(residual, Residual::Underflow(512), "unit {lun}, {cdb:x?}");
                assert!(status == 0 || lun > 0, "unit {lun}, {cdb:x?}: status {status}");
            }
        }
        // A host waiting for an R2T of a WRITE sends no data, and nothing is written.
        for lun in [0, 1] {
            host.address(lun);
            let _ = host.test_unit_ready().await;
            let room = DataIn::Into(Buf::zeroed(512));
            let told = host.residual_of(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], None, room).await;
            assert_eq!(told, (2, Residual::Underflow(512)), "unit {lun}");
        }
        host.address(0);
        assert_eq!(host.read(0).await, [7; 512]);
    });
}

/// Hosts that share a volume with the host that resets the target start anew; others are not affected.
#[test]
fn cold_reset_ends_the_sessions_that_share_its_volumes() {
    play(11, async |sim, array| {
        // The third host has the other volume for itself.
        array
            .edit_access(|table| table.presentations.retain(|shown| (shown.host.as_str() == OPEN) == (shown.lun == 1)))
            .await;
        let (mut asks, mut shares, mut stranger) = (
            Host::login(sim, &Login::of("web", 1)).await,
            Host::login(sim, &Login::of("other", 2)).await,
            Host::login(sim, &Login::of(OPEN, 3)).await,
        );
        asks.take_attention().await;
        shares.take_attention().await;
        assert_eq!(asks.manage(TaskFunction::TargetColdReset).await, TaskFunctionOutcome::Complete);
        let told = asks.until_told_and_closed().await;
        assert_eq!(told, AsyncEvent::SessionDropped { time2wait_s: 0, time2retain_s: 0 });
        shares.until_closed().await;
        let left: Vec<_> = array.sessions().await.into_iter().map(|session| session.initiator).collect();
        assert_eq!(left, [initiator(OPEN)]);
        assert_eq!(stranger.manage(TaskFunction::TargetColdReset).await, TaskFunctionOutcome::Complete);
        for (host, isid) in [("web", 1), ("other", 2)] {
            let mut back = Host::login(sim, &Login::of(host, isid)).await;
            back.take_attention().await;
            back.write(0, isid).await;
        }
    });
}

/// A unit may be reset by each host that it is presented to; all others are notified, and no acknowledged write is
/// lost.
#[test]
fn reset_by_one_host_under_load_of_another_is_told_to_both_and_aims_at_what_is_there() {
    play(10, async |sim, array| {
        let (mut loader, mut resetter) =
            (Host::login(sim, &Login::of("web", 1)).await, Host::login(sim, &Login::of("other", 2)).await);
        for host in [&mut loader, &mut resetter] {
            host.take_attention().await;
        }
        resetter.address(77);
        for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet, TaskFunction::LogicalUnitReset] {
            assert_eq!(resetter.manage(function).await, TaskFunctionOutcome::LunDoesNotExist, "{function:?}");
        }
        assert_eq!(loader.test_unit_ready().await, None, "nothing has happened to anybody");
        resetter.address(0);
        for (fill, function) in [(1, TaskFunction::LogicalUnitReset), (2, TaskFunction::TargetWarmReset)] {
            loader.write(0, fill).await;
            array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
            let begun = array.disk.counts().writes;
            let ended = loader.submit_write(1, fill).await;
            while array.disk.counts().writes == begun {
                sim.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(resetter.manage(function).await, TaskFunctionOutcome::Complete);
            array.disk.set_faults(DiskFaults::default());
            assert_eq!(loader.status_of_task(ended).await, 0x40, "TASK ABORTED after {function:?}");
            for host in [&mut resetter, &mut loader] {
                assert_eq!(host.test_unit_ready().await, Some(RESET), "{function:?}");
            }
            assert_eq!((loader.read(0).await, loader.read(1).await), (vec![fill; 512], vec![fill; 512]));
        }
    });
}
