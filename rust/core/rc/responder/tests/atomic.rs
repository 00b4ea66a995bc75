// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Atomic operations, ATOMIC WRITE and FLUSH: executed once, answered as often as requested.

use super::*;
use crate::core::wire::headers::{
    AtomicEth,
    Feth, //
};

fn add(n: u32, va: u64, value: u64) -> IncomingRequest {
    let mut request = packet(n, Opcode::RcFetchAdd, 0);
    request.extension = Extension::Atomic(AtomicEth::new(va, RKEY, value, 0x99));
    request
}

fn swap(n: u32, va: u64) -> IncomingRequest {
    let mut request = packet(n, Opcode::RcCompareSwap, 0);
    request.extension = Extension::Atomic(AtomicEth::new(va, RKEY, 5, 4));
    request
}

impl Rig {
    /// All responses: number of the packet, and what an atomic operation found.
    fn originals(&mut self) -> Vec<(u32, Option<u64>)> {
        let mut answers = Vec::new();
        while let Some(response) = self.responder.next_response(1) {
            let n = response.psn().distance_from(psn(0)) as u32;
            answers.push(match response {
                Response::Atomic { original, .. } => (n, Some(original)),
                _ => (n, None),
            });
        }
        answers
    }
}

#[test]
fn each_does_what_it_says_and_is_answered_in_its_turn() {
    let mut rig = Rig::new();
    rig.ok(add(0, BASE + 8, 3));
    rig.ok(swap(1, BASE));
    rig.ok(write(2, true, true, 1, 1));
    let swapped = AtomicOp::CompareSwap {
        compare: 4,
        swap: 5,
    };
    let did = [
        Did::Change(BASE + 8, AtomicOp::FetchAdd(3)),
        Did::Change(BASE, swapped),
    ];
    assert_eq!(rig.env.did[..2], did);
    assert_eq!(
        rig.originals(),
        [(0, Some(1)), (1, Some(2)), (2, None)],
        "an ACK waits behind them"
    );
    let Some(Response::Atomic { msn, .. }) = ({
        rig.ok(add(3, BASE, 1));
        rig.responder.next_response(9)
    }) else {
        panic!("an answer");
    };
    assert_eq!(msn, 4);
}

/// The answer waits behind the READ before it, and the READ behind it waits for it.
#[test]
fn answers_keep_the_order_of_reads() {
    let mut rig = Rig::with(ResponderConfig {
        max_dest_rd_atomic: 3,
        ..config()
    });
    rig.ok(read(0, BASE, 300));
    rig.ok(add(2, BASE, 1));
    rig.ok(read(3, BASE, 1));
    let order: Vec<_> = rig.originals().into_iter().map(|(n, _)| n).collect();
    assert_eq!(order, [0, 1, 2, 3]);
}

#[test]
fn a_duplicate_is_answered_and_not_executed() {
    let mut rig = Rig::new();
    rig.ok(add(0, BASE, 3));
    rig.ok(swap(1, BASE + 8));
    let before = rig.originals();
    for _ in 0..3 {
        for request in [add(0, BASE, 3), swap(1, BASE + 8)] {
            assert_eq!(rig.on(request).dropped, Some(DropReason::Duplicate));
        }
        assert_eq!(rig.originals(), before);
    }
    // Also when the region is gone, or the right: nothing is accessed.
    rig.env.is_gone = true;
    rig.responder.set_rights(RemoteRights::default());
    let _ = rig.on(add(0, BASE, 3));
    assert_eq!(rig.originals(), before[..1]);
    assert_eq!(rig.env.did.len(), 2);
}

/// Another operation, address or key at an old PSN is no duplicate; nor is a READ one of an
/// atomic operation, or the other way round.
#[test]
fn what_was_not_asked_before_is_no_duplicate() {
    let mut rig = Rig::new();
    rig.ok(add(0, BASE, 3));
    rig.ok(read(1, BASE, 8));
    rig.originals();
    let mut foreign = add(0, BASE, 3);
    foreign.extension = Extension::Atomic(AtomicEth::new(BASE, RKEY + 1, 3, 0));
    let mut bare = add(0, BASE, 3);
    bare.extension = Extension::None;
    for old in [
        swap(0, BASE),
        add(0, BASE + 8, 3),
        add(1, BASE, 3),
        read(0, BASE, 8),
        foreign,
        bare,
    ] {
        assert_eq!(rig.on(old).dropped, Some(DropReason::UnknownRead));
        assert_eq!(rig.originals(), []);
    }
    assert_eq!(rig.env.did.len(), 2);
}

#[test]
fn what_is_refused_is_not_executed() {
    let rights = RemoteRights {
        atomic: false,
        ..RemoteRights::ALL
    };
    let without = ResponderConfig { rights, ..config() };
    let none = ResponderConfig {
        max_dest_rd_atomic: 0,
        ..config()
    };
    let mut long = add(0, BASE, 1);
    long.payload_len = 4;
    let mut bare = add(0, BASE, 1);
    bare.extension = Extension::None;
    let cases = [
        (without, add(0, BASE, 1)),
        (none, add(0, BASE, 1)),
        (config(), add(0, BASE + 4, 1)),
        (config(), swap(0, BASE + 1)),
        (config(), long),
        (config(), bare),
    ];
    for (config, request) in cases {
        let mut rig = Rig::with(config);
        rig.invalid(request);
        assert_eq!(rig.env.did, []);
    }
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    rig.invalid(add(1, BASE, 1));
    for va in [BASE - 8, BASE + SIZE, u64::MAX - 7] {
        let mut rig = Rig::new();
        let outcome = rig.on(swap(0, va));
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        rig.ends_with_nak(0, NakCode::RemoteAccess);
    }
}

/// They share the responder's resources with READs; without a place for the answer nothing is done.
#[test]
fn too_many_at_a_time() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.ok(add(1, BASE, 1));
    let outcome = rig.on(add(2, BASE, 1));
    assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest));
    assert_eq!(rig.env.did.len(), 2);
    assert_eq!(rig.originals().len(), 3);
    // Fewer slots than the peer may have outstanding.
    let mut responder = Responder::new(Vec::new());
    responder.connect(config());
    let mut env = Env::default();
    let outcome = responder.on_request(&add(0, BASE, 1), &mut env);
    assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest));
    assert_eq!(env.did, []);
}

#[test]
fn an_answer_that_has_not_left_is_the_same_again() {
    let mut rig = Rig::new();
    rig.ok(add(0, BASE, 3));
    let first = rig.responder.next_response(1).unwrap();
    assert!(!rig.responder.has_response());
    rig.responder.unsend(&first);
    assert_eq!(rig.responder.next_response(1), Some(first));
}

/// What was refused behind it leaves later, too.
#[test]
fn acks_and_naks_behind_an_answer_that_has_not_left_are_not_lost() {
    let mut rig = Rig::new();
    rig.ok(add(0, BASE, 3));
    rig.ok(write(1, true, true, 8, 8));
    let _ = rig.on(write(3, true, true, 8, 8));
    let all = |rig: &mut Rig| {
        rig.responder.begin_run();
        core::iter::from_fn(|| rig.responder.next_response(1)).collect::<Vec<_>>()
    };
    let sent = all(&mut rig);
    let numbers = sent.iter().map(|r| r.psn().distance_from(psn(0)) as u32);
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 2]);
    for from in [0, 0, 1] {
        rig.responder.unsend(&sent[from]);
        assert_eq!(all(&mut rig), sent[from..]);
    }
    // In the next run they have left.
    rig.ok(add(2, BASE, 3));
    let sent = all(&mut rig);
    rig.responder.unsend(&sent[0]);
    assert_eq!(all(&mut rig), sent);
}

/// A peer that has its answer may ask for the next thing, also while a copy of that answer waits
/// for the device.
#[test]
fn an_answer_that_has_not_left_again_takes_no_room() {
    let mut responder = Responder::new(vec![Resource::default(); 1]);
    responder.connect(ResponderConfig {
        max_dest_rd_atomic: 1,
        ..config()
    });
    let mut env = Env::default();
    let mut on = |responder: &mut Responder<_>, n| responder.on_request(&add(n, BASE, 1), &mut env);
    assert_eq!(on(&mut responder, 0), Outcome::default());
    let first = responder.next_response(1).unwrap();
    let again = on(&mut responder, 0);
    assert_eq!(again.dropped, Some(DropReason::Duplicate));
    responder.begin_run();
    assert_eq!(responder.next_response(1), Some(first));
    responder.unsend(&first);
    assert_eq!(on(&mut responder, 1), Outcome::default());
    assert!(responder
        .next_response(1)
        .is_some_and(|next| next.psn() == psn(1)));
    assert!(!responder.has_response());
}

// ATOMIC WRITE and FLUSH: executed once, answered by a READ response without data.

const GLOBAL: FlushPlacement = FlushPlacement {
    global: true,
    persistent: false,
};

fn word(n: u32, va: u64) -> IncomingRequest {
    let mut request = packet(n, Opcode::RcAtomicWrite, 8);
    request.extension = Extension::Reth(Reth::new(va, RKEY, 8));
    request
}

fn flush(n: u32, feth: Feth, va: u64, len: u32) -> IncomingRequest {
    let mut request = packet(n, Opcode::RcFlush, 0);
    request.extension = Extension::Flush(feth, Reth::new(va, RKEY, len));
    request
}

const RANGE: Feth = Feth::new(Feth::GLOBAL, Feth::RANGE);
const DONE: Reply = Err((true, true, 0));

#[test]
fn each_is_done_once_and_answered_as_often_as_somebody_asks() {
    let mut rig = Rig::new();
    rig.ok(word(0, BASE + 8));
    rig.ok(flush(1, RANGE, BASE + 1, 100));
    assert_eq!(rig.answers(), [(0, DONE), (1, DONE)]);
    let region = Feth::new(Feth::GLOBAL | Feth::PERSISTENT, Feth::REGION);
    rig.ok(flush(2, region, 0, 0));
    let both = FlushPlacement {
        global: true,
        persistent: true,
    };
    let did = [
        Did::Word(BASE + 8),
        Did::Flush(FlushRange::Range(Span::new(RKEY, BASE + 1, 100)), GLOBAL),
        Did::Flush(FlushRange::Region(MemoryKey::new(RKEY)), both),
    ];
    assert_eq!(rig.env.did, did);
    rig.answers();
    rig.env.is_gone = true;
    for again in [flush(1, RANGE, BASE + 1, 100), flush(2, region, 0, 0)] {
        assert_eq!(rig.on(again).dropped, Some(DropReason::Duplicate));
    }
    assert_eq!(rig.answers(), [(1, DONE), (2, DONE)]);
    // The first is older than what the peer may have outstanding; and what was never asked.
    for old in [
        word(0, BASE + 8),
        word(1, BASE + 1),
        read(1, BASE + 1, 100),
        flush(1, RANGE, BASE, 100),
    ] {
        assert_eq!(rig.on(old).dropped, Some(DropReason::UnknownRead));
    }
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.answers(), []);
}

#[test]
fn a_flush_that_is_refused_is_not_executed() {
    let without = |rights| ResponderConfig { rights, ..config() };
    let all = RemoteRights::ALL;
    let no_write = without(RemoteRights {
        write: false,
        ..all
    });
    let no_global = without(RemoteRights {
        flush_global: false,
        ..all
    });
    let no_persistence = without(RemoteRights {
        flush_persistent: false,
        ..all
    });
    let none = ResponderConfig {
        max_dest_rd_atomic: 0,
        ..config()
    };
    let persistent = Feth::new(Feth::PERSISTENT, Feth::RANGE);
    let long = IncomingRequest {
        payload_len: 9,
        ..word(0, BASE)
    };
    let mut promised = word(0, BASE);
    promised.extension = Extension::Reth(Reth::new(BASE, RKEY, 9));
    let filled = IncomingRequest {
        payload_len: 4,
        ..flush(0, RANGE, BASE, 1)
    };
    let cases = [
        (no_write, word(0, BASE)),
        (none, word(0, BASE)),
        (config(), word(0, BASE + 4)),
        (config(), long),
        (config(), promised),
        (no_global, flush(0, RANGE, BASE, 1)),
        (no_persistence, flush(0, persistent, BASE, 1)),
        (none, flush(0, RANGE, BASE, 1)),
        (config(), flush(0, Feth::new(0, 0), BASE, 1)),
        (config(), flush(0, Feth::new(4, 0), BASE, 1)),
        (config(), flush(0, Feth::new(1, 2), BASE, 1)),
        (config(), filled),
    ];
    for (config, request) in cases {
        let mut rig = Rig::with(config);
        rig.invalid(request);
        assert_eq!(rig.env.did, []);
    }
    for request in [
        word(0, BASE - 8),
        flush(0, RANGE, BASE - 1, 4),
        flush(0, RANGE, u64::MAX, 4),
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.on(request).fatal, Some(Fatal::AccessError));
        rig.ends_with_nak(0, NakCode::RemoteAccess);
    }
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    rig.invalid(flush(1, RANGE, BASE, 1));
}
