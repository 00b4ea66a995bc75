// SPDX-License-Identifier: GPL-2.0

//! Single conversations: what a loss costs and what is sent in all, which the properties of `model`
//! do not count; and what these found, each as the smallest conversation that shows it.

use ferroce_core::completion::Status;
use ferroce_core::operation::Operation;
use ferroce_core::rc::responder::Fatal;
use ferroce_core::rc::RequesterCounters;
use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::frame::Content;
use ferroce_host_tests::model::scenario::{Blackout, Fault, Link, Receive, Scenario, Work};
use ferroce_host_tests::model::world::World;

/// Side 0 does this, in packets of 256 bytes.
fn doing(work: Vec<Work>) -> Scenario {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].work = work;
    scenario
}

/// All succeeds; what the requester of side 0 counted.
fn succeed(world: &mut World) -> RequesterCounters {
    assert_eq!(conclude(world).unwrap().endings, [None, None]);
    *world.endpoints[0].requester.counters()
}

/// A world in which the first packet that is `lost` is lost.
fn losing(scenario: &Scenario, mut lost: impl FnMut(&Content) -> bool + 'static) -> World {
    let mut world = World::new(scenario);
    let mut done = false;
    world.network.filter = Some(Box::new(move |_, content| {
        let lose = !done && lost(content);
        done |= lose;
        lose.into()
    }));
    world
}

#[test]
fn remote_memory_that_vanishes_while_it_is_read() {
    for reads_left in [0, 1, 390, 391] {
        let small = Work::new(Operation::Write, 0, 10);
        let read = Work::new(Operation::Read, 390, 160);
        let mut world = World::new(&doing(vec![small.clone(), read, small]));
        world.endpoints[1].memory.reads_left = reads_left;
        conclude(&mut world).unwrap();
        let ended: Vec<_> = (world.endpoints[0].sent.iter())
            .map(|done| done.status)
            .collect();
        if reads_left == 391 {
            // All that there is.
            assert_eq!(ended, [Status::Success; 3]);
            continue;
        }
        // What came behind the READ was executed, but not acknowledged.
        let error = [Status::RemAccessErr, Status::WrFlushErr];
        assert_eq!(ended, [&[Status::Success], &error[..]].concat());
        assert_eq!(world.endpoints[1].fatal, Some(Fatal::AccessError));
    }
}

#[test]
fn a_receiver_that_is_ready_late() {
    let long = Work::new(Operation::Send, 3, 232);
    let mut scenario = doing(vec![long, Work::new(Operation::Write, 0, 10)]);
    scenario.sides[0].retry_cnt = 0;
    let (gap, fault) = (9000, Fault::None(0));
    scenario.sides[1].receives.push(Receive { gap, fault });
    let counters = succeed(&mut World::new(&scenario));
    // Between the NAKs nothing is sent but the two messages.
    assert!(counters.rnr_naks > 3);
    assert!(counters.packets <= 5 * (counters.rnr_naks + 1));
    assert_eq!((counters.timeouts, counters.seq_naks), (0, 0));
}

#[test]
fn one_lost_packet_costs_one_round_trip_and_no_timeout() {
    let scenario = doing(vec![Work::new(Operation::Write, 10, 0)]);
    let third = Psn::new(scenario.sides[0].first_psn).add(2);
    let mut world = losing(&scenario, move |content| content.psn() == third);
    let counters = succeed(&mut world);
    assert_eq!((counters.seq_naks, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 8);
    assert_eq!(world.endpoints[1].memory.writes.len(), 10);
}

#[test]
fn acks_are_few() {
    let mut work = vec![Work::new(Operation::Write, 1, 0); 50];
    for silent in &mut work[..49] {
        silent.signaled = false;
    }
    let mut world = World::new(&doing(work));
    succeed(&mut world);
    assert_eq!(world.endpoints[0].sent.len(), 1);
    // One for the last message.
    assert_eq!(world.network.tally.sent, 51);
}

/// A request that asks no peer was done, and the sender goes over it again after a timeout. Its
/// worker is late: meanwhile all before it turns out to have arrived, so that its slot is free and
/// filled with another request, which must not be sent before its turn.
#[test]
fn what_fills_a_slot_again_waits_for_its_turn() {
    let mut scenario = Scenario::calm(256);
    let side = &mut scenario.sides[1];
    (side.timeout, side.send_log, side.budget, side.late) = (9, 1, 1, 24);
    side.work = vec![Work::new(Operation::Send, 0, 0); 7];
    (side.work[2].op, side.work[2].gap) = (Operation::Read, 674);
    side.work[3].gap = 462;
    side.work[4].op = Operation::LocalInv;
    for link in &mut scenario.links {
        link.delay = 1;
    }
    scenario.blackouts = vec![Blackout {
        from: 675,
        length: 462,
        side: Some(1),
    }];
    let mut world = World::new(&scenario);
    succeed(&mut world);
    assert_eq!(world.endpoints[1].local_ops, [4]);
    assert_ne!(world.endpoints[1].timeouts(), 0);
}

/// One packet is lost, and the network doubles the NAK that says so: that is one retry, not two.
#[test]
fn a_doubled_nak_is_one_loss() {
    let mut scenario = doing(vec![Work::new(Operation::Write, 4, 0)]);
    scenario.sides[0].retry_cnt = 1;
    // Slow enough that the second NAK comes before the ACK.
    scenario.links[0].delay = 100;
    scenario.links[1] = Link {
        duplicate: 100,
        ..Link::good()
    };
    let counters = succeed(&mut losing(&scenario, Content::is_request));
    assert_eq!((counters.seq_naks, counters.retransmitted), (1, 4));
}

/// The answer to a READ is lost, and with a SEND and another READ behind it all is asked for again.
/// The ACK of the SEND must not say that the answer to the second READ was lost too.
#[test]
fn an_old_ack_does_not_pass_a_read() {
    let work = [
        Operation::Read,
        Operation::Send,
        Operation::Read,
        Operation::Send,
    ];
    let scenario = doing(work.map(|op| Work::new(op, 1, 0)).to_vec());
    let mut world = losing(&scenario, |content| matches!(content, Content::Read(..)));
    let counters = succeed(&mut world);
    assert_eq!((counters.implied_naks, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 4);
}

/// The end of a flight is lost, and it is one that responses answer: an atomic operation behind a
/// WRITE that asks for no ACK. Nothing tells the peer, so a probe has to.
#[test]
fn a_lost_end_that_is_answered_by_responses_costs_no_timeout() {
    let mut silent = Work::new(Operation::Write, 1, 0);
    silent.signaled = false;
    let add = Work::new(Operation::FetchAdd, 0, 0);
    for (work, lost) in [
        (vec![silent.clone(), add.clone()], 0..2),
        (vec![silent, add], 1..2),
    ] {
        let mut world = World::new(&doing(work));
        let mut sent = 0;
        world.network.filter = Some(Box::new(move |side, _| {
            let lose = side == 0 && lost.contains(&sent);
            sent += u32::from(side == 0);
            lose.into()
        }));
        let counters = succeed(&mut world);
        assert_eq!(counters.timeouts, 0);
        assert!(counters.tail_probes > 0);
    }
}
