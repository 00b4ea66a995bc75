// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Packets that break the rules: order of opcodes, headers, lengths.

use super::*;

#[test]
fn the_order_of_opcodes() {
    // Without a message in progress.
    for request in [
        send(0, false, false, 256),
        send(0, false, true, 1),
        write(0, false, false, 256, 0),
        write(0, false, true, 1, 0),
    ] {
        Rig::new().invalid(request);
    }
    // In a SEND, and in a WRITE.
    let send_first = send(0, true, false, 256);
    let write_first = write(0, true, false, 256, 600);
    for (first, second) in [
        (send_first, send(1, true, false, 256)),
        (send_first, send(1, true, true, 1)),
        (send_first, write(1, false, false, 256, 0)),
        (send_first, write(1, true, true, 1, 1)),
        (send_first, read(1, BASE, 1)),
        (write_first, write(1, true, false, 256, 600)),
        (write_first, send(1, false, false, 256)),
        (write_first, send(1, true, true, 1)),
        (write_first, read(1, BASE, 1)),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 1000);
        rig.ok(first);
        rig.invalid(second);
        // A receive in progress does not get lost.
        let flushed = rig.responder.abort().map(|done| (done.wr_id, done.status));
        let is_send = first.opcode.info().kind == Kind::Send;
        assert_eq!(flushed, is_send.then_some((1, Status::WrFlushErr)));
        assert!(rig.env.completions.is_empty());
    }
}

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

/// An opcode that is not served is refused at its turn; before and behind it is as any other.
#[test]
fn opcodes_that_are_not_served() {
    for opcode in Opcode::ALL.iter().copied() {
        if opcode.info().kind != Kind::Unsupported {
            continue;
        }
        for len in [0, 28, 4096 + 28] {
            Rig::new().invalid(packet(0, opcode, len));
        }
        let mut rig = Rig::new();
        let outcome = rig.on(packet(1, opcode, 28));
        assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
        assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
        rig.ok(write(0, true, true, 1, 1));
        rig.answers();
        let outcome = rig.on(packet(0, opcode, 28));
        assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
        assert_eq!(rig.answers(), [(0, Ok(ACK))]);
    }
}

#[test]
fn lengths_of_packets() {
    for (first, last, len) in [
        (true, false, 255),
        (true, false, 257),
        (true, false, 0),
        (true, true, 257),
        (true, true, u32::MAX),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 1 << 40);
        rig.invalid(send(0, first, last, len));
        Rig::new().invalid(write(0, first, last, len, len));
    }
    for (last, len) in [(false, 255), (false, 0), (true, 0), (true, 257)] {
        let mut rig = Rig::new();
        rig.receive(1, 1 << 40);
        rig.ok(send(0, true, false, 256));
        rig.invalid(send(1, false, last, len));
        let mut rig = Rig::new();
        rig.ok(write(0, true, false, 256, 256 + len.max(1)));
        rig.invalid(write(1, false, last, len, 0));
    }
    let mut rig = Rig::new();
    rig.receive(1, 10);
    rig.ok(send(0, true, true, 0));
    assert_eq!(rig.env.did, [Did::Complete(1, Status::Success, 0)]);
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

#[test]
fn a_write_must_bring_what_it_promised() {
    Rig::new().invalid(write(0, true, true, 10, 9));
    Rig::new().invalid(write(0, true, true, 10, 11));
    Rig::new().invalid(write(0, true, false, 256, 256));
    Rig::new().invalid(write(0, true, false, 256, 10));
    Rig::new().invalid(write(0, true, false, 256, MAX + 1));
    for (last, len) in [(false, 256), (true, 43), (true, 45)] {
        let mut rig = Rig::new();
        rig.ok(write(0, true, false, 256, 300));
        rig.invalid(write(1, false, last, len, 0));
    }
}
