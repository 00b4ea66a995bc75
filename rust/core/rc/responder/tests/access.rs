// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Remote memory: which right it takes, and memory that vanishes.

use super::*;

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
fn ranges_are_checked_as_a_whole_and_do_not_wrap() {
    let bad = [
        (BASE - 1, 2, RKEY),
        (BASE + SIZE - 1, 2, RKEY),
        (BASE, 2, RKEY + 1),
        (u64::MAX, 2, RKEY),
        (u64::MAX - 99, 101, RKEY),
        (0u64.wrapping_sub(1 << 30), 1 << 31, RKEY),
    ];
    for (va, length, rkey) in bad {
        let extension = Extension::Reth(Reth::new(va, rkey, length));
        let mut rig = Rig::new();
        let outcome = rig.on(IncomingRequest {
            extension,
            ..read(0, 0, 0)
        });
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        rig.ends_with_nak(0, NakCode::RemoteAccess);

        let mut rig = Rig::new();
        let last = length <= MTU;
        let outcome = rig.on(IncomingRequest {
            extension,
            ..write(0, true, last, length.min(MTU), 0)
        });
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        assert!(!rig.env.did.iter().any(|did| matches!(did, Did::Write(..))));
        rig.ends_with_nak(0, NakCode::RemoteAccess);
    }
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
fn rights_of_the_qp() {
    for (read_too, write_too) in [(false, true), (true, false)] {
        let mut rig = Rig::with(ResponderConfig {
            rights: RemoteRights {
                read: read_too,
                write: write_too,
                ..RemoteRights::default()
            },
            ..config()
        });
        if write_too {
            rig.ok(write(0, true, true, 1, 1));
            rig.answers();
            rig.invalid(read(1, BASE, 1));
        } else {
            rig.ok(read(0, BASE, 1));
            rig.answers();
            rig.invalid(write(1, true, true, 1, 1));
        }
    }
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
