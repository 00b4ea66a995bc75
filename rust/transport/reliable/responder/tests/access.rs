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
        rig.refused(0, NakCode::RemoteAccess);

        let mut rig = Rig::new();
        let last = length <= MTU;
        let outcome = rig.on(IncomingRequest {
            extension,
            ..write(0, true, last, length.min(MTU), 0)
        });
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        assert!(!rig.env.did.iter().any(|did| matches!(did, Did::Write(..))));
        rig.refused(0, NakCode::RemoteAccess);
    }
}

#[test]
fn memory_that_vanishes_during_a_write() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    rig.env.write_fails = true;
    rig.receive(3, 0);
    let outcome = rig.on(with_imm(write(1, false, true, 44, 0)));
    assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    assert_eq!(rig.env.completions[0].status, Status::WrFlushErr);
    rig.refused(1, NakCode::RemoteAccess);
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
    rig.refused(1, NakCode::RemoteAccess);
    // With the last response too.
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.responder.next_response(1);
    let _ = rig.responder.read_failed();
    rig.refused(0, NakCode::RemoteAccess);
}
