//! Proxy between `conform` and the target: passes PDUs on and injects a fault into them.

use crate::fault::{Fault, PduAction, PduChange, Pings, ProxyState, Says};
use crate::pdu::{
    ASYNC, COMMAND, DATA_IN, Digests, EXP_CMD_SN, EXP_STAT_SN, FINAL, LOGIN_REQUEST, LOGIN_RESPONSE, MAX_CMD_SN,
    NOP_IN, NOP_OUT, Pdu, STAT_SN, TAG, TRANSFER_TAG,
};
use std::io::{Result, Write, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Target Transfer Tag of the pings of the proxy.
const PING: u32 = 0x70_69_6e_67;
/// AsyncEvent code of a target that requests a logout.
const LOGOUT_REQUESTED: u8 = 1;

/// Starts the proxy and returns its address; it forwards connections to `target` until the process ends.
pub(crate) fn start(target: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        for initiator in listener.incoming().map_while(Result::ok) {
            let target = TcpStream::connect(target).expect("the target listens");
            for stream in [&initiator, &target] {
                stream.set_nodelay(true).expect("a socket");
            }
            let seen = Mutex::new(ProxyState::behind(address));
            let line = Arc::new(Line { seen, speaking: Mutex::default(), fault, initiator, target });
            let (other, own) = (line.clone(), line.clone());
            if !matches!(fault.says, Says::Nothing) {
                thread::spawn(move || own.say());
            }
            thread::spawn(move || line.pass_requests());
            thread::spawn(move || other.pass_answers());
        }
    });
    address
}

/// Connection between an initiator and the target.
struct Line {
    seen: Mutex<ProxyState>,
    /// Held while a PDU for the initiator is numbered and written, so that numbers and bytes keep one order.
    speaking: Mutex<()>,
    fault: Fault,
    initiator: TcpStream,
    target: TcpStream,
}

impl Line {
    fn seen(&self) -> MutexGuard<'_, ProxyState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speak(&self) -> MutexGuard<'_, ()> {
        self.speaking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn digests(&self) -> Digests {
        self.seen().digests
    }

    /// Forwards requests until one end closes or fails, and then closes the other one.
    fn pass_requests(&self) {
        let _ = self.requests();
        let _ = self.target.shutdown(Shutdown::Both);
        let _ = self.initiator.shutdown(Shutdown::Both);
    }

    fn pass_answers(&self) {
        let _ = self.answers();
        if !self.fault.keeps_open {
            let _ = self.initiator.shutdown(Shutdown::Both);
            let _ = self.target.shutdown(Shutdown::Both);
        }
    }

    fn say(&self) {
        match self.fault.says {
            Says::Nothing => {}
            Says::Pings(how) => while self.ping(how).is_ok() {},
            Says::AsksToLeave { within_s, ends_after_ms } => {
                let _ = self.ask_to_leave(within_s);
                if let Some(ms) = ends_after_ms {
                    thread::sleep(Duration::from_millis(ms));
                    let _ = self.initiator.shutdown(Shutdown::Both);
                    let _ = self.target.shutdown(Shutdown::Both);
                }
            }
        }
    }

    /// Sends a ping, unless the initiator has closed.
    fn ping(&self, how: Pings) -> Result<()> {
        thread::sleep(Duration::from_millis(100));
        let _speaking = self.speak();
        let seen = self.seen();
        if !seen.is_in {
            return Ok(());
        }
        let mut ping = Pdu::blank(NOP_IN);
        ping.header[1] = FINAL;
        ping.put(TAG, u32::MAX);
        ping.put(TRANSFER_TAG, if how == Pings::Unanswerable { u32::MAX } else { PING });
        if how == Pings::WithData {
            ping.data = vec![0; 4];
        }
        // A ping of the target carries StatSN without consuming it.
        self.number(&mut ping, &seen);
        ping.write(&mut &self.initiator, seen.digests)
    }

    fn ask_to_leave(&self, within_s: u8) -> Result<()> {
        while !self.seen().is_in {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(500));
        let _speaking = self.speak();
        let mut seen = self.seen();
        let mut message = Pdu::blank(ASYNC);
        message.header[1] = FINAL;
        message.put(TAG, u32::MAX);
        (message.header[36], message.header[43]) = (LOGOUT_REQUESTED, within_s);
        self.number(&mut message, &seen);
        seen.shift = seen.shift.wrapping_add(1);
        seen.next_stat_sn = seen.next_stat_sn.wrapping_add(1);
        message.write(&mut &self.initiator, seen.digests)
    }

    fn number(&self, pdu: &mut Pdu, seen: &ProxyState) {
        pdu.put(STAT_SN, seen.next_stat_sn);
        pdu.put(EXP_CMD_SN, seen.window[0]);
        pdu.put(MAX_CMD_SN, seen.window[1]);
    }

    fn requests(&self) -> Result<()> {
        let (mut from, mut to) = (self.initiator.try_clone()?, self.target.try_clone()?);
        while let Some((mut pdu, is_whole)) = Pdu::read(&mut from, || self.digests())? {
            if !is_whole {
                to.write_all(&pdu.header)?;
                copy(&mut from, &mut to)?;
                return Ok(());
            }
            if pdu.opcode() == NOP_OUT && pdu.tag() == u32::MAX && pdu.word(TRANSFER_TAG) == PING {
                // The target does not know this ping, so its answer is not forwarded.
                match self.fault.says {
                    Says::Pings(Pings::EndingAllTheSame) => return Ok(()),
                    _ => continue,
                }
            }
            let mut seen = self.seen();
            if seen.is_in && pdu.opcode() != LOGIN_REQUEST {
                // Statuses that the initiator received in excess are subtracted: the target did not send them.
                let shift = seen.shift;
                pdu.add(EXP_STAT_SN, shift.wrapping_neg());
            }
            if pdu.opcode() == COMMAND {
                seen.note(&pdu);
            }
            let deed = planted(self.fault.request, &mut pdu, &mut seen);
            drop(seen);
            for pdu in deed.pdus(pdu) {
                pdu.write(&mut to, self.digests())?;
            }
        }
        Ok(())
    }

    fn answers(&self) -> Result<()> {
        let (mut from, mut to) = (self.target.try_clone()?, self.initiator.try_clone()?);
        while let Some((mut pdu, _)) = Pdu::read(&mut from, || self.digests())? {
            let _speaking = self.speak();
            let mut seen = self.seen();
            let digests = seen.digests;
            if pdu.opcode() == LOGIN_RESPONSE {
                seen.note_login(&pdu);
            }
            let (before, counted) = (seen.shift, u32::from(pdu.is_counted()));
            let deed = planted(self.fault.answer, &mut pdu, &mut seen);
            // A dropped or inserted status shifts the StatSN of every later PDU.
            match &deed {
                PduAction::Drop => seen.shift = before.wrapping_sub(counted),
                PduAction::Twice => seen.shift = before.wrapping_add(counted),
                PduAction::More(more) => seen.shift = before.wrapping_add(more.len() as u32),
                PduAction::Pass | PduAction::Instead(_) => {}
            }
            let is_numbered = seen.is_in && (pdu.opcode() != DATA_IN || pdu.is_counted());
            drop(seen);
            let is_more = matches!(deed, PduAction::Twice | PduAction::More(_));
            for (nth, mut pdu) in (0..).zip(deed.pdus(pdu)) {
                if is_numbered {
                    pdu.add(STAT_SN, before.wrapping_add(if is_more { nth } else { 0 }));
                }
                pdu.write(&mut to, digests)?;
                let mut seen = self.seen();
                seen.window = [pdu.word(EXP_CMD_SN), pdu.word(MAX_CMD_SN)];
                if pdu.is_counted() {
                    seen.next_stat_sn = pdu.word(STAT_SN).wrapping_add(1);
                }
            }
        }
        Ok(())
    }
}

fn planted(plant: Option<PduChange>, pdu: &mut Pdu, seen: &mut ProxyState) -> PduAction {
    plant.map_or(PduAction::Pass, |plant| plant(pdu, seen))
}
