//! Flight recorders of volumes: content, and refusals.

use crate::array::{Array, OPEN, initiator};
use crate::host::{Host, Login};
use crate::node::{SIZE, furnished};
use crate::{SLOW, play};
use control::request::NewTrace;
use model::{Order, Refusal, Report, TRACE_COMMANDS, TRACE_COMMANDS_MAX, TraceReport, Traced, VolumeName, code};
use shard::World;
use sim::{DiskFaults, Sim};

/// Operation code, status, sense, bytes out, bytes in, session.
type TracedCommand = (u8, u8, [u8; 3], u32, u32, u32);

const REGISTER_AND_RESERVE: [[u8; 10]; 2] = [[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], [0x5F, 1, 3, 0, 0, 0, 0, 0, 24, 0]];

fn volume(lun: u64) -> VolumeName {
    format!("v{lun}").parse().unwrap()
}

impl Array {
    async fn trace(&self, order: Order) -> Result<TraceReport, Refusal> {
        match self.try_order(order).await? {
            Report::Trace(told) => Ok(told),
            other => panic!("a trace was answered with {other:?}"),
        }
    }

    async fn start_trace(&self, lun: u64, commands: u32) -> Result<TraceReport, Refusal> {
        self.trace(Order::StartTrace { volume: volume(lun), commands }).await
    }

    async fn stop_trace(&self, lun: u64) -> Result<TraceReport, Refusal> {
        self.trace(Order::StopTrace { volume: volume(lun) }).await
    }

    async fn take_trace(&self, lun: u64) -> Result<Traced, Refusal> {
        match self.try_order(Order::TakeTrace { volume: volume(lun) }).await? {
            Report::Traced(traced) => Ok(*traced),
            other => panic!("a trace was answered with {other:?}"),
        }
    }
}

fn told(traced: &Traced) -> Vec<TracedCommand> {
    let told = traced.commands.iter();
    told.map(|it| (it.cdb[0], it.status, it.sense, it.data_out_bytes, it.data_in_bytes, it.session)).collect()
}

/// LUN 0 is a file, whose commands wait; LUN 1 is in memory, whose commands complete immediately. With three shards,
/// sessions have other home shards than one of the units.
#[test]
fn trace_has_each_command_once_with_its_status_whichever_way_it_took() {
    play(81, async |sim, array| {
        let mut web = Host::login(sim, &Login::of("web", 0)).await;
        let mut other = Host::login(sim, &Login::of(OPEN, 0)).await;
        for lun in [0, 1] {
            array.start_trace(lun, TRACE_COMMANDS).await.unwrap();
            web.address(lun);
            other.address(lun);
            web.take_attention().await;
            other.take_attention().await;
            for block in 0..20 {
                web.write(block, 7).await;
                assert_eq!(other.read(block).await, [7; 512]);
            }
            assert_eq!(web.try_read(1 << 20).await, Err((5, 0x21, 0)));
            let list = [[0; 8], [0, 0, 0, 0, 0, 0, 0, 1], [0; 8]].concat();
            assert_eq!(web.status_of(&REGISTER_AND_RESERVE[0], &list).await.0, 0);
            let list = [[0, 0, 0, 0, 0, 0, 0, 1], [0; 8], [0; 8]].concat();
            assert_eq!(web.status_of(&REGISTER_AND_RESERVE[1], &list).await.0, 0);
            assert_eq!(other.status_of(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).await.0, 0x18);
            let traced = array.take_trace(lun).await.unwrap();
            let mut expected: Vec<TracedCommand> = vec![(0, 2, [6, 0x29, 0], 0, 0, 0), (0, 2, [6, 0x29, 0], 0, 0, 1)];
            for _ in 0..20 {
                expected.extend([(0x2a, 0, [0; 3], 512, 0, 0), (0x28, 0, [0; 3], 0, 512, 1)]);
            }
            expected.push((0x28, 2, [5, 0x21, 0], 0, 0, 0));
            expected.extend([(0x5f, 0, [0; 3], 24, 0, 0); 2]);
            expected.push((0x28, 0x18, [0; 3], 0, 0, 1));
            assert_eq!(told(&traced), expected);
            assert_eq!(traced.sessions, [initiator("web"), initiator(OPEN)]);
            assert_eq!((traced.volume.clone(), traced.block_bytes, traced.blocks), (volume(lun), 512, 64));
            assert_eq!((traced.overwritten, traced.unended), (0, 0));
            let cdb = traced.commands[4].cdb;
            assert_eq!(cdb[..10], [0x2a, 0, 0, 0, 0, 1, 0, 0, 1, 0]);
            // Commands do not overlap, and lie within the trace; a disk takes its time.
            let follows = |pair: &[model::TracedCommand]| pair[0].began_ns + pair[0].took_ns <= pair[1].began_ns;
            assert!(traced.commands.windows(2).all(follows) && traced.commands[45].began_ns <= traced.span_ns);
            assert!(lun == 1 || traced.commands[4].took_ns >= 20_000, "{:?}", traced.commands[4]);
            assert!(traced.commands.iter().zip(1..).all(|(command, number)| command.number == number));
        }
    });
}

#[test]
fn trace_keeps_the_last_commands_and_says_what_is_missing() {
    play(82, async |sim, array| {
        let mut host = Host::login(sim, &Login::of("web", 0)).await;
        host.take_attention().await;
        array.start_trace(0, 4).await.unwrap();
        for block in 0..6 {
            host.write(block, 7).await;
        }
        array.disk.set_faults(DiskFaults { latency: SLOW..=SLOW, ..DiskFaults::default() });
        host.submit_write(9, 8).await;
        sim.sleep(SLOW / 10).await;
        let traced = array.take_trace(0).await.unwrap();
        assert_eq!(
            traced.commands.iter().map(|it| (it.number, it.cdb[5])).collect::<Vec<_>>(),
            [(3, 2), (4, 3), (5, 4), (6, 5)]
        );
        assert_eq!((traced.overwritten, traced.unended), (2, 1));
        let report = array.stop_trace(0).await.unwrap();
        assert_eq!(
            (report.is_on, report.kept, report.overwritten, report.incomplete, report.sessions),
            (true, 4, 2, 1, 1)
        );
        assert_eq!(report.running_ms, traced.span_ns / 1_000_000);
        // A command that began before the trace is not in it, whenever it ends.
        array.start_trace(0, 4).await.unwrap();
        host.wait_for_answers().await;
        array.disk.set_faults(DiskFaults::default());
        host.read(9).await;
        let traced = array.take_trace(0).await.unwrap();
        assert_eq!(told(&traced), [(0x28, 0, [0; 3], 0, 512, 0)]);
        assert_eq!((traced.commands[0].number, traced.overwritten, traced.unended), (1, 0, 0));
    });
}

#[test]
fn trace_that_cannot_be_is_refused_and_says_why() {
    play(83, async |_, array| {
        let unknown = Order::StartTrace { volume: "none".parse().unwrap(), commands: 1 };
        assert_eq!(array.trace(unknown).await.unwrap_err().code, code::VOLUME_UNKNOWN);
        assert_eq!(array.take_trace(0).await.unwrap_err().code, code::TRACE_UNKNOWN);
        assert_eq!(array.stop_trace(0).await.unwrap_err().code, code::TRACE_UNKNOWN);
        assert!(!array.trace(Order::Trace { volume: volume(0) }).await.unwrap().is_on);
        array.start_trace(0, 10).await.unwrap();
        assert_eq!(array.start_trace(0, 10).await.unwrap_err().code, code::TRACED_ALREADY);
        let refused = array.start_trace(1, TRACE_COMMANDS_MAX).await.unwrap_err();
        assert!(refused.code == code::LIMIT_REACHED && refused.message.contains("10 are in use"), "{refused}");
        array.start_trace(1, TRACE_COMMANDS_MAX - 10).await.unwrap();
        array.stop_trace(0).await.unwrap();
        assert_eq!(array.start_trace(0, 11).await.unwrap_err().code, code::LIMIT_REACHED);
        // A deleted volume takes its trace along.
        array.hide_the_second_volume().await;
        array.try_order(Order::DeleteVolume { volume: volume(1) }).await.unwrap();
        assert_eq!(array.take_trace(1).await.unwrap_err().code, code::VOLUME_UNKNOWN);
        array.start_trace(0, TRACE_COMMANDS_MAX).await.unwrap();
    });
}

#[test]
fn file_of_a_trace_is_what_the_volume_has_had() {
    for shards in [1, 2] {
        Sim::new(84).run(async move |sim| {
            let (node, mut host) = furnished(&sim, shards).await;
            let vm1: VolumeName = "tank/vm1".parse().unwrap();
            for commands in [0, TRACE_COMMANDS_MAX + 1] {
                let asked = NewTrace { commands: Some(commands) };
                let refused = node.control.traces.start(&vm1, &asked).await.unwrap_err();
                assert_eq!(refused.code, code::NUMBER_INVALID);
            }
            assert_eq!(node.control.traces.take(&vm1).await.unwrap_err().code, code::TRACE_UNKNOWN);
            node.control.traces.start(&vm1, &NewTrace::default()).await.unwrap();
            for block in 0..9 {
                host.write(block, 7).await;
                host.read(block).await;
            }
            let traced = trace::parse(&trace::emit(node.control.traces.take(&vm1).await.unwrap())).unwrap();
            let report = node.control.traces.stop(&vm1).await.unwrap();
            assert_eq!((report.kept, traced.commands.len()), (18, 18));
            assert_eq!((traced.volume, traced.blocks, traced.block_bytes), (vm1, SIZE.bytes() / 512, 512));
            assert!(
                traced
                    .commands
                    .iter()
                    .all(|command| command.status == 0 && (command.took_ns > 0 || command.cdb[0] == 0x28))
            );
            let written: u32 = traced.commands.iter().map(|command| command.data_out_bytes).sum();
            let read: u32 = traced.commands.iter().map(|command| command.data_in_bytes).sum();
            assert_eq!((written, read), (9 * 512, 9 * 512));
        });
    }
}
