// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What a request needs to be executed: rights, memory, its form, a receive. What single packets of
//! a peer can be, and what becomes of each, is in `tests/hostile`.

use super::*;
use crate::core::completion::Carried;

#[test]
fn empty_rdma_needs_no_right() {
    let mut rig = Rig::new();
    let nowhere = Extension::Reth(Reth::new(u64::MAX, 0, 0));
    rig.ok(IncomingRequest {
        extension: nowhere,
        ..write(0, true, true, 0, 0)
    });
    rig.ok(IncomingRequest {
        extension: nowhere,
        ..read(1, 0, 0)
    });
    assert_eq!(rig.env.did, []);
    // The READ's response says what the WRITE's ACK would.
    assert_eq!(rig.answers(), [(1, Err((true, true, 0)))]);
}

#[test]
fn memory_that_vanishes_during_a_write() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    rig.env.write_fails = true;
    rig.receive(3, 0);
    let outcome = rig.on(with_imm(write(1, false, true, 44, 0)));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocAccessErr);
    rig.ends_with_nak(1, NakCode::RemoteAccess);
}

/// The receive says what was wrong, and there is no event; without one there is, and at once.
#[test]
fn immediate_data_with_a_wrong_key() {
    let wrong = |first, last, len| IncomingRequest {
        extension: Extension::Reth(Reth::new(BASE, RKEY + 1, 300)),
        ..write(0, first, last, len, 300)
    };
    let whole = || {
        with_imm(IncomingRequest {
            extension: Extension::Reth(Reth::new(BASE, RKEY + 1, 44)),
            ..write(0, true, true, 44, 44)
        })
    };
    let mut rig = Rig::new();
    rig.receive(3, 0);
    rig.receive(4, 0);
    assert_eq!(rig.on(whole()).fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions.len(), 1);
    let done = rig.env.completions[0];
    assert_eq!((done.wr_id, done.status), (3, Status::LocAccessErr));
    assert_eq!(done.op, RecvOp::WriteImm);
    rig.ends_with_nak(0, NakCode::RemoteAccess);

    let mut rig = Rig::new();
    assert_eq!(rig.on(whole()).fatal, Some(Fatal::AccessError));
    assert_eq!(rig.env.completions.len(), 0);
    rig.ends_with_nak(0, NakCode::RemoteAccess);

    // Of several packets the first one is refused, which takes no receive; so it is when they come
    // in one piece.
    let in_one_piece = IncomingRequest {
        span: 2,
        ..with_imm(wrong(true, true, 300))
    };
    for request in [wrong(true, false, MTU), in_one_piece] {
        let mut rig = Rig::new();
        rig.receive(3, 0);
        assert_eq!(rig.on(request).fatal, Some(Fatal::AccessError));
        assert_eq!(rig.env.completions.len(), 0);
        rig.ends_with_nak(0, NakCode::RemoteAccess);
    }

    let mut rig = Rig::new();
    rig.env.receives.push_back(TakeReceive::Malformed {
        wr_id: 4,
        status: Status::LocQpOpErr,
    });
    assert_eq!(rig.on(whole()).fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocQpOpErr);
    rig.ends_with_nak(0, NakCode::RemoteAccess);
}

#[test]
fn memory_that_vanishes_during_a_read() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 600));
    rig.ok(read(3, BASE, 1));
    rig.responder.next_response(1);
    rig.responder.next_response(1);
    let outcome = rig.responder.read_failed();
    assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    rig.ends_with_nak(1, NakCode::RemoteAccess);
    // With the last response too.
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.responder.next_response(1);
    let _ = rig.responder.read_failed();
    rig.ends_with_nak(0, NakCode::RemoteAccess);
}

// Packets that break the rules: order of opcodes, headers, lengths.

#[test]
fn headers_that_do_not_belong() {
    let mut no_reth = write(0, true, true, 1, 1);
    no_reth.extension = Extension::None;
    Rig::new().invalid(no_reth);
    let mut no_reth = read(0, BASE, 1);
    no_reth.extension = Extension::None;
    Rig::new().invalid(no_reth);
    let mut payload = read(0, BASE, 1);
    payload.payload_len = 1;
    Rig::new().invalid(payload);
    let mut nothing = send(0, true, true, 0);
    nothing.span = 0;
    Rig::new().invalid(nothing);
}

#[test]
fn lengths_of_spans() {
    for (first, last, span, len, fits) in [
        (true, true, 3, 513, true),
        (true, true, 3, 768, true),
        (true, true, 3, 512, false),
        (true, true, 3, 769, false),
        (true, false, 2, 512, true),
        (true, false, 2, 511, false),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 10_000);
        let request = IncomingRequest {
            span,
            ..send(0, first, last, len)
        };
        if fits {
            rig.ok(request);
            assert_eq!(rig.responder.expected_psn(), psn(span));
        } else {
            rig.invalid(request);
        }
    }
}

// SENDs and immediate data: the receives that they take.

#[test]
fn a_send_fills_a_receive() {
    let mut rig = Rig::new();
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, false, 256));
    assert_eq!(rig.answers(), []);
    rig.ok(IncomingRequest {
        solicited: true,
        ..with_imm(send(2, false, true, 5))
    });
    let did = [
        Did::Scatter(0, 256),
        Did::Scatter(256, 256),
        Did::Scatter(512, 5),
        Did::Complete(1, Status::Success, 517),
    ];
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.env.completions[0].carried, Carried::Imm([9, 8, 7, 6]));
    assert!(rig.env.completions[0].solicited);
    assert_eq!(rig.answers(), [(2, Ok(ACK))]);
    assert_eq!(rig.responder.expected_psn(), psn(3));
}

#[test]
fn without_a_receive_nothing_is_executed() {
    let mut rig = Rig::new();
    let outcome = rig.on(send(0, true, false, 256));
    assert_eq!(outcome.dropped, Some(DropReason::NoReceive));
    // The rest of what was in flight needs no response.
    let _ = rig.on(send(1, false, true, 1));
    assert_eq!(rig.answers(), [(0, Ok(NOT_READY))]);
    let _ = rig.on(send(0, true, false, 256));
    assert_eq!(rig.answers(), [(0, Ok(NOT_READY))]);
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, true, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    assert_eq!(rig.env.completions[0].byte_len, 257);
}

#[test]
fn the_last_packet_of_a_write_with_immediate_data_is_written_once() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    let last = with_imm(write(1, false, true, 44, 0));
    assert_eq!(rig.on(last).dropped, Some(DropReason::NoReceive));
    assert_eq!(rig.answers(), [(1, Ok(NOT_READY))]);
    rig.receive(5, 0);
    rig.ok(last);
    let did = [
        Did::Check(BASE, 300),
        Did::Write(BASE, 256),
        Did::Write(BASE + 256, 44),
        Did::Complete(5, Status::Success, 300),
    ];
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.env.completions[0].op, RecvOp::WriteImm);
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
}

#[test]
fn a_receive_that_is_too_short() {
    let mut rig = Rig::new();
    rig.receive(1, 300);
    rig.ok(send(0, true, false, 256));
    let outcome = rig.on(send(1, false, true, 45));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocLenErr);
    assert_eq!(rig.env.did.len(), 2);
    rig.ends_with_nak(1, NakCode::InvalidRequest);
    assert!(rig.responder.abort().is_none());
    assert_eq!(rig.env.completions.len(), 1);
}

#[test]
fn a_send_beyond_the_longest_message() {
    let mut rig = Rig::new();
    rig.receive(1, 1 << 40);
    rig.ok(IncomingRequest {
        span: 1 << 23,
        ..send(0, true, false, MAX)
    });
    let outcome = rig.on(send(1 << 23, false, true, 1));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocLenErr);
}

#[test]
fn a_receive_whose_memory_is_not_there() {
    let mut rig = Rig::new();
    rig.receive(1, 300);
    rig.env.scatter_fails = true;
    let outcome = rig.on(send(0, true, true, 45));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocProtErr);
    rig.ends_with_nak(0, NakCode::RemoteOperational);
}

#[test]
fn a_malformed_receive() {
    for imm in [false, true] {
        let mut rig = Rig::new();
        rig.env.receives.push_back(TakeReceive::Malformed {
            wr_id: 4,
            status: Status::LocQpOpErr,
        });
        let outcome = if imm {
            rig.on(with_imm(write(0, true, true, 1, 1)))
        } else {
            rig.on(send(0, true, true, 1))
        };
        assert_eq!(outcome.fatal, Some(Fatal::LocalError));
        assert_eq!(rig.env.completions[0].status, Status::LocQpOpErr);
        assert!(!rig.env.did.iter().any(|did| matches!(did, Did::Write(..))));
        rig.ends_with_nak(0, NakCode::RemoteOperational);
    }
}

/// The data first, then the key, then the completion; once, however often the packet comes.
#[test]
fn a_send_invalidates_a_key_with_its_last_packet() {
    let mut rig = Rig::new();
    rig.receive(1, 600);
    rig.env.keys.push(0x1234);
    rig.ok(send(0, true, false, 256));
    rig.ok(invalidating(1, false, 5, 0x1234));
    let did = [
        Did::Scatter(0, 256),
        Did::Scatter(256, 5),
        Did::Invalidate(0x1234),
        Did::Complete(1, Status::Success, 261),
    ];
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.env.completions[0].carried, Carried::Invalidated(0x1234));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    let again = rig.on(invalidating(1, false, 5, 0x1234));
    assert_eq!(again.dropped, Some(DropReason::Duplicate));
    assert_eq!(rig.env.did.len(), 4);
}

/// The receive has been taken, so it ends; the peer had no right to the key.
#[test]
fn a_key_that_may_not_be_invalidated_ends_the_connection() {
    let mut rig = Rig::new();
    rig.receive(1, 600);
    rig.env.keys.push(0x1234);
    let outcome = rig.on(invalidating(0, true, 0, 0x1235));
    assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    assert_eq!(rig.env.completions.len(), 1);
    assert_eq!(rig.env.completions[0].status, Status::WrFlushErr);
    assert_eq!(rig.env.keys, [0x1234]);
    rig.ends_with_nak(0, NakCode::RemoteAccess);
    // Nothing of it is left that could complete again.
    assert!(rig.responder.abort().is_none());
    assert_eq!(rig.env.completions.len(), 1);
}
