// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The responder of datagrams: each packet is a message, from any sender that knows the Q_Key (IBTA
//! 9.8.3, 10.2.5, 9.9.3). The requester is [`super::uc::requester`].
//!
//! A datagram without a receive, or with one too small for it and its GRH, is dropped and counted,
//! and the receive serves the next one (class D of IBTA 9.9.3.1). Adapters that complete such a
//! receive in error let every sender that knows the Q_Key take the QP down; here none can.

use super::completion::{
    RecvCompletion,
    RecvOp,
    Status, //
};
use super::env::{
    AccessError,
    Receive,
    ReceiveEnv, //
};
use super::segment::IncomingRequest;
use super::uc::{
    fail_receive,
    take_receive,
    UnreliableDrop,
    UnreliableOutcome, //
};
use crate::core::wire::gid::GRH_LEN;

/// Q_Keys with this bit are controlled: only privileged users set them (IBTA 10.2.5).
const CONTROLLED: u32 = 1 << 31;

/// The Q_Key of a datagram whose WR gives `wanted`. A controlled Q_Key in the WR selects the QP's
/// own Q_Key (IBTA 10.2.5), which only a privileged user can have set.
#[inline]
pub const fn qkey_of(wanted: u32, own: u32) -> u32 {
    if wanted & CONTROLLED != 0 {
        own
    } else {
        wanted
    }
}

/// Further requests of the datagram responder to its QP.
pub trait DatagramEnv: ReceiveEnv {
    /// Writes the GRH to the beginning of the receive taken last.
    fn scatter_header(&mut self) -> Result<(), AccessError>;

    /// A receive is complete, by a datagram of the QP `source`.
    fn complete_from(&mut self, completion: RecvCompletion, source: u32);
}

/// The responder of a QP.
#[derive(Default)]
pub struct DatagramResponder {
    ready: bool,
    qkey: u32,
    /// A receive that was taken and is not complete.
    receive: Option<Receive>,
}

impl DatagramResponder {
    /// Resets everything: the transition to RESET. Nothing completes.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The transition to RTR.
    pub fn connect(&mut self, qkey: u32) {
        *self = Self {
            ready: true,
            qkey,
            receive: None,
        };
    }

    /// Changes the Q_Key.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.qkey = qkey;
    }

    /// Whether the QP accepts this Q_Key.
    #[inline]
    pub fn admits(&self, qkey: u32) -> bool {
        self.qkey == qkey
    }

    /// Handles a datagram of the QP `source`. Its payload is with the `env`.
    pub fn on_datagram(
        &mut self,
        request: &IncomingRequest,
        source: u32,
        env: &mut impl DatagramEnv,
    ) -> UnreliableOutcome {
        if !self.ready {
            return UnreliableOutcome::Dropped(UnreliableDrop::NotReady);
        }
        let receive = match take_receive(&mut self.receive, RecvOp::Send, env) {
            Ok(receive) => receive,
            Err(UnreliableOutcome::Failed) => return self.fail(),
            Err(outcome) => return outcome,
        };
        let total = request.payload_len.saturating_add(GRH_LEN);
        if u64::from(total) > receive.capacity {
            return UnreliableOutcome::Dropped(UnreliableDrop::TooLong);
        }
        let payload = |env: &mut _| match request.payload_len {
            0 => Ok(()),
            len => ReceiveEnv::scatter(env, GRH_LEN, len),
        };
        if env.scatter_header().is_err() || payload(env).is_err() {
            let _ = fail_receive(receive, env);
            return self.fail();
        }
        self.receive = None;
        env.complete_from(
            RecvCompletion {
                wr_id: receive.wr_id,
                status: Status::Success,
                op: RecvOp::Send,
                byte_len: total,
                carried: request.extension.imm().into(),
                solicited: request.solicited,
                vendor_err: 0,
            },
            source,
        );
        UnreliableOutcome::Executed
    }

    fn fail(&mut self) -> UnreliableOutcome {
        self.ready = false;
        self.receive = None;
        UnreliableOutcome::Failed
    }

    /// The QP goes to ERR: nothing more is received. Returns the completion of the receive in use.
    #[must_use]
    pub fn abort(&mut self) -> Option<RecvCompletion> {
        let receive = self.receive.take();
        self.reset();
        receive.map(|receive| RecvCompletion::flushed(receive.wr_id, RecvOp::Send))
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_ud))]
mod tests {
    use super::*;
    use crate::core::completion::Carried;
    use crate::core::env::TakeReceive;
    use crate::core::wire::headers::Deth;
    use crate::core::wire::opcode::Opcode;
    use crate::core::wire::packet::Extension;
    use crate::core::wire::psn::Psn;

    #[derive(Default)]
    struct Env {
        receive: Option<u64>,
        taken: u64,
        broken: bool,
        header: bool,
        payload: Option<(u32, u32)>,
        done: Option<(RecvCompletion, Option<u32>)>,
    }

    impl ReceiveEnv for Env {
        fn take_receive(&mut self) -> TakeReceive {
            match self.receive.take() {
                None => TakeReceive::Empty,
                Some(u64::MAX) => TakeReceive::Malformed {
                    wr_id: 9,
                    status: Status::LocQpOpErr,
                },
                Some(capacity) => {
                    self.taken += 1;
                    TakeReceive::Taken { wr_id: 5, capacity }
                }
            }
        }

        fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
            self.payload = Some((offset, len));
            Ok(())
        }

        fn complete(&mut self, done: RecvCompletion) {
            self.done = Some((done, None));
        }
    }

    impl DatagramEnv for Env {
        fn scatter_header(&mut self) -> Result<(), AccessError> {
            self.header = true;
            if self.broken {
                Err(AccessError)
            } else {
                Ok(())
            }
        }

        fn complete_from(&mut self, done: RecvCompletion, source: u32) {
            self.done = Some((done, Some(source)));
        }
    }

    fn datagram(payload_len: u32) -> IncomingRequest {
        IncomingRequest {
            opcode: Opcode::UdSendOnlyImm,
            psn: Psn::new(77),
            span: 1,
            ack_req: false,
            keeps: false,
            solicited: true,
            extension: Extension::DethImm(Deth::new(1, 2), [1, 2, 3, 4]),
            payload_len,
        }
    }

    fn ready() -> DatagramResponder {
        let mut responder = DatagramResponder::default();
        responder.connect(1);
        responder
    }

    #[test]
    fn only_its_own_controlled_key_is_used() {
        assert_eq!(qkey_of(0x7fff_ffff, 5), 0x7fff_ffff);
        assert_eq!(qkey_of(0x8001_0000, 5), 5);
        assert_eq!(qkey_of(0xffff_ffff, 0x8001_0000), 0x8001_0000);
    }

    #[test]
    fn a_datagram_stands_behind_the_header() {
        let (mut responder, mut env) = (ready(), Env::default());
        assert!(responder.admits(1) && !responder.admits(2));
        responder.set_qkey(2);
        assert!(responder.admits(2) && !responder.admits(1));
        for len in [0, 60] {
            env.receive = Some(100);
            let outcome = responder.on_datagram(&datagram(len), 0x1234, &mut env);
            assert_eq!(outcome, UnreliableOutcome::Executed);
            let (done, source) = env.done.unwrap();
            assert_eq!((done.wr_id, done.byte_len), (5, 40 + len));
            assert_eq!(done.carried, Carried::Imm([1, 2, 3, 4]));
            assert!(done.solicited);
            assert!(env.header && source == Some(0x1234));
        }
        assert_eq!(env.payload, Some((40, 60)));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_its_receive_kept() {
        let (mut responder, mut env) = (ready(), Env::default());
        let outcome = responder.on_datagram(&datagram(0), 2, &mut env);
        assert_eq!(
            outcome,
            UnreliableOutcome::Dropped(UnreliableDrop::NoReceive)
        );
        env.receive = Some(99);
        for len in [60, u32::MAX] {
            let outcome = responder.on_datagram(&datagram(len), 2, &mut env);
            assert_eq!(outcome, UnreliableOutcome::Dropped(UnreliableDrop::TooLong));
        }
        let outcome = responder.on_datagram(&datagram(59), 2, &mut env);
        assert_eq!((outcome, env.taken), (UnreliableOutcome::Executed, 1));
    }

    #[test]
    fn a_receive_that_cannot_be_used_ends_the_qp() {
        let (mut responder, mut env) = (ready(), Env::default());
        env.receive = Some(100);
        env.broken = true;
        let outcome = responder.on_datagram(&datagram(1), 2, &mut env);
        assert_eq!(outcome, UnreliableOutcome::Failed);
        assert_eq!(env.done.unwrap().0.status, Status::LocProtErr);
        let outcome = responder.on_datagram(&datagram(1), 2, &mut env);
        assert_eq!(
            outcome,
            UnreliableOutcome::Dropped(UnreliableDrop::NotReady)
        );
        let (mut responder, mut env) = (ready(), Env::default());
        env.receive = Some(u64::MAX);
        let outcome = responder.on_datagram(&datagram(1), 2, &mut env);
        assert_eq!(outcome, UnreliableOutcome::Failed);
        assert_eq!(env.done.unwrap().0.status, Status::LocQpOpErr);
    }

    #[test]
    fn a_receive_that_was_kept_is_flushed() {
        let (mut responder, mut env) = (ready(), Env::default());
        env.receive = Some(10);
        let _ = responder.on_datagram(&datagram(1), 2, &mut env);
        let done = responder.abort().unwrap();
        assert_eq!((done.wr_id, done.status), (5, Status::WrFlushErr));
    }
}
