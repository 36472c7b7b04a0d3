//! `blockyard volume …`

use super::Desk;
use super::disks::absolute;
use crate::args::VolumeCommand;
use crate::confirm;
use crate::failure::Failure;
use crate::output::Rows;
use control::request::{NewBackend, NewVolume, Resize};
use model::{Size, VolumeReport};

pub fn run(desk: &Desk, command: VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::List => list(desk),
        VolumeCommand::Create { name, size, block_size, stripe_unit, file, ram, null } => {
            let backend = match (file, ram, null) {
                (Some(path), _, _) => Some(NewBackend::File { path: absolute(&path)? }),
                (None, true, _) => Some(NewBackend::Ram {}),
                (None, false, true) => Some(NewBackend::Null {}),
                (None, false, false) => None,
            };
            let request = NewVolume { name, size, block_bytes: block_size, stripe_unit, backend };
            let answer = desk.client.post("/volumes", &request, "volume")?;
            let volume: VolumeReport = answer.decode()?;
            desk.out.done(&answer, &format!("volume {} created: {}", volume.name, volume.size))
        }
        VolumeCommand::Resize { name, size } => {
            let answer = desk.client.patch(&format!("/volumes/{name}"), &Resize { size }, "volume")?;
            let volume: VolumeReport = answer.decode()?;
            let rescan = "hosts were told; on Linux run: iscsiadm -m session --rescan";
            desk.out.done(&answer, &format!("volume {name} has {}; {rescan}", volume.size))
        }
        VolumeCommand::Delete { name, yes } => {
            confirm::destruction("volume", &name, yes)?;
            desk.client.delete(&format!("/volumes/{name}"))?;
            desk.out.said(&format!("volume {name} is gone"))
        }
    }
}

fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/volumes", "volumes")?;
    let volumes: Vec<VolumeReport> = answer.decode()?;
    let row = |volume: &VolumeReport| {
        let counters = &volume.counters;
        vec![
            volume.name.to_string(),
            volume.state.as_str().to_owned(),
            volume.size.iec(),
            volume.block_bytes.to_string(),
            volume.backend.as_str().to_owned(),
            (counters.reads + counters.writes).to_string(),
            Size::new(counters.read_bytes).iec(),
            Size::new(counters.written_bytes).iec(),
            counters.errors.to_string(),
        ]
    };
    let header = &["VOLUME", "STATE", "SIZE", "BLOCK", "BACKEND", "COMMANDS", "READ", "WRITTEN", "ERRORS"];
    desk.out.rows(&answer, &Rows { header, rows: volumes.iter().map(row).collect() })
}
