// SPDX-License-Identifier: GPL-2.0

//! How conversations end, one by one: each error as both sides see it, and what a single loss
//! costs.

use ferroce_core::completion::Status;
use ferroce_core::operation::Operation;
use ferroce_core::rc::responder::Fatal;
use ferroce_core::wire::headers::AethSyndrome;
use ferroce_core::wire::opcode::Opcode;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::frame::Content;
use ferroce_host_tests::model::plan::BASE;
use ferroce_host_tests::model::scenario::{Fault, Place, Receive, Scenario, Work};
use ferroce_host_tests::model::world::World;

/// A good request, the one in question, and a third one that must be flushed.
fn around(in_question: Work) -> Scenario {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].work = vec![
        Work::new(Operation::Write, 2, 88),
        in_question,
        Work::new(Operation::Write, 0, 10),
    ];
    scenario
}

/// Some packets and a rest.
fn long(op: Operation) -> Work {
    Work::new(op, 3, 232)
}

fn with_receive(mut scenario: Scenario, fault: Fault) -> Scenario {
    scenario.sides[1].receives.push(Receive { gap: 0, fault });
    scenario
}

/// Runs to the end; the request in question ended so.
fn end(world: &mut World, status: Status) {
    conclude(world).unwrap();
    let sent = world.endpoints[0].sent.iter();
    let ended: Vec<_> = sent.map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(
        ended,
        [(0, Status::Success), (1, status), (2, Status::WrFlushErr)]
    );
}

fn succeed(world: &mut World) {
    let outcome = conclude(world).unwrap();
    assert_eq!(outcome.endings, [None, None]);
}

#[test]
fn no_right_to_the_memory() {
    for op in [Operation::Write, Operation::WriteImm, Operation::Read] {
        for place in [Place::WrongKey, Place::Wraps, Place::Outside] {
            let mut world = World::new(&around(Work { place, ..long(op) }));
            end(&mut world, Status::RemAccessErr);
            let peer = &world.endpoints[1];
            assert_eq!(peer.fatal, Some(Fatal::AccessError));
            assert_eq!(peer.memory.writes.len(), 3);
        }
    }
}

#[test]
fn a_read_that_runs_out_of_the_region() {
    let mut world = World::new(&around(long(Operation::Read)));
    let end_of_region = BASE + world.plans[1].region.len() as u64;
    let message = &mut world.plans[0].messages[1];
    message.arguments.remote_addr = end_of_region - u64::from(message.request.length) + 1;
    message.offset = None;
    end(&mut world, Status::RemAccessErr);
}

#[test]
fn a_send_that_does_not_fit() {
    let mut world = World::new(&with_receive(
        around(long(Operation::Send)),
        Fault::Short(1),
    ));
    end(&mut world, Status::RemInvReqErr);
    let peer = &world.endpoints[1];
    assert_eq!(peer.fatal, Some(Fatal::LocalError));
    assert_eq!(peer.memory.received[0].done.status, Status::LocLenErr);
    assert_eq!(peer.memory.received[0].done.wr_id, 0);
}

#[test]
fn a_receive_without_memory() {
    let mut world = World::new(&with_receive(around(long(Operation::SendImm)), Fault::Gone));
    end(&mut world, Status::RemOpErr);
    let status = world.endpoints[1].memory.received[0].done.status;
    assert_eq!(status, Status::LocProtErr);
}

#[test]
fn a_receive_that_makes_no_sense() {
    let scenario = around(Work::new(Operation::Send, 0, 10));
    let mut world = World::new(&with_receive(scenario, Fault::Malformed));
    end(&mut world, Status::RemOpErr);
    let status = world.endpoints[1].memory.received[0].done.status;
    assert_eq!(status, Status::LocQpOpErr);
}

#[test]
fn local_memory_that_is_gone() {
    for op in [Operation::Send, Operation::Write, Operation::Read] {
        for span in [1, 50] {
            let mut scenario = around(Work {
                gone: true,
                ..long(op)
            });
            scenario.span = span;
            end(&mut World::new(&scenario), Status::LocProtErr);
        }
    }
}

#[test]
fn remote_memory_that_vanishes_while_it_is_read() {
    for reads_left in [0, 1, 390, 391] {
        let mut world = World::new(&around(Work::new(Operation::Read, 390, 160)));
        world.endpoints[1].memory.reads_left = reads_left;
        if reads_left == 391 {
            // All that there is.
            succeed(&mut world);
            continue;
        }
        // What came behind the READ was executed, but not acknowledged.
        end(&mut world, Status::RemAccessErr);
        assert_eq!(world.endpoints[1].fatal, Some(Fatal::AccessError));
    }
}

#[test]
fn a_receiver_that_is_ready_late() {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].retry_cnt = 0;
    scenario.sides[0].work = vec![long(Operation::Send), Work::new(Operation::Write, 0, 10)];
    let fault = Fault::None(0);
    scenario.sides[1]
        .receives
        .push(Receive { gap: 9000, fault });
    let mut world = World::new(&scenario);
    succeed(&mut world);
    // Between the NAKs nothing is sent but the two messages.
    let counters = world.endpoints[0].requester.counters();
    assert!(counters.rnr_naks > 3);
    assert!(counters.packets <= 5 * (counters.rnr_naks + 1));
    assert_eq!(counters.timeouts, 0);
    assert_eq!(counters.seq_naks, 0);
}

/// A world of one request, in which the network loses what the filter says.
fn losing(work: Work, mut filter: impl FnMut(usize, &Content) -> bool + 'static) -> World {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].work.push(work);
    let mut world = World::new(&scenario);
    world.network.filter = Some(Box::new(move |side, content| filter(side, content).into()));
    world
}

#[test]
fn one_lost_packet_costs_one_round_trip_and_no_timeout() {
    let mut n = 0;
    let mut world = losing(Work::new(Operation::Write, 10, 0), move |_, content| {
        let is_middle = matches!(content, Content::Request(request, _)
            if request.opcode == Opcode::RcWriteMiddle);
        n += u32::from(content.is_request());
        is_middle && n == 3
    });
    succeed(&mut world);
    let counters = world.endpoints[0].requester.counters();
    assert_eq!((counters.seq_naks, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 8);
    assert_eq!(world.endpoints[1].memory.writes.len(), 10);
}

#[test]
fn a_lost_read_response_costs_no_timeout() {
    let mut n = 0;
    let mut world = losing(Work::new(Operation::Read, 10, 0), move |_, content| {
        let is_response = matches!(content, Content::Read(..));
        n += u32::from(is_response);
        is_response && n == 3
    });
    succeed(&mut world);
    let counters = world.endpoints[0].requester.counters();
    assert_eq!((counters.implied_naks, counters.timeouts), (1, 0));
}

#[test]
fn a_lost_ack_is_asked_for_again() {
    let mut lost = false;
    let mut world = losing(Work::new(Operation::Send, 0, 10), move |_, content| {
        let is_ack = matches!(content.syndrome(), Some(AethSyndrome::Ack { .. }));
        is_ack && !std::mem::replace(&mut lost, true)
    });
    succeed(&mut world);
    let received = world.endpoints[1].memory.received.iter();
    assert_eq!(received.filter(|r| r.done.status.is_success()).count(), 1);
    // Nothing comes behind it, so a probe asks, and not the timeout.
    let counters = world.endpoints[0].requester.counters();
    assert_eq!((counters.tail_probes, counters.timeouts), (1, 0));
}

#[test]
fn acks_are_few() {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].work = (0..50)
        .map(|n| Work {
            signaled: n == 49,
            ..Work::new(Operation::Write, 1, 0)
        })
        .collect();
    let mut world = World::new(&scenario);
    succeed(&mut world);
    assert_eq!(world.endpoints[0].sent.len(), 1);
    // One for the last message.
    assert_eq!(world.network.tally.sent, 51);
}
