// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! ATOMIC WRITE and FLUSH: executed once, answered by a READ response without data.

use super::*;
use crate::core::wire::headers::Feth;

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
fn what_is_refused_is_not_executed() {
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
