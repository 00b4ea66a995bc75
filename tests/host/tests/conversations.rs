// SPDX-License-Identifier: GPL-2.0

//! What the model network found, each as the smallest conversation that shows it.

use ferroce_core::operation::Operation;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::frame::Content;
use ferroce_host_tests::model::network::Filter;
use ferroce_host_tests::model::scenario::{Blackout, Link, Scenario, Work};
use ferroce_host_tests::model::world::World;

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
    assert_eq!(conclude(&mut world).unwrap().endings, [None, None]);
    assert_eq!(world.endpoints[1].local_ops, [4]);
    assert_ne!(world.endpoints[1].timeouts(), 0);
}

/// Loses the first packet that is `lost`.
fn lose_once(mut lost: impl FnMut(&Content) -> bool + 'static) -> Filter {
    let mut done = false;
    Box::new(move |_, content| {
        let lose = !done && lost(content);
        done |= lose;
        lose.into()
    })
}

/// One packet is lost, and the network doubles the NAK that says so: that is one retry, not two.
#[test]
fn a_doubled_nak_is_one_loss() {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].retry_cnt = 1;
    scenario.sides[0].work = vec![Work::new(Operation::Write, 4, 0)];
    // Slow enough that the second NAK comes before the ACK.
    scenario.links[0].delay = 100;
    scenario.links[1] = Link {
        duplicate: 100,
        ..Link::good()
    };
    let mut world = World::new(&scenario);
    world.network.filter = Some(lose_once(Content::is_request));
    let outcome = conclude(&mut world).unwrap();
    assert_eq!(outcome.endings, [None, None]);
    let counters = world.endpoints[0].requester.counters();
    assert_eq!((counters.seq_naks, counters.retransmitted), (1, 4));
}

/// The answer to a READ is lost, and with a SEND and another READ behind it all is asked for again.
/// The ACK of the SEND must not say that the answer to the second READ was lost too.
#[test]
fn an_old_ack_does_not_pass_a_read() {
    let mut scenario = Scenario::calm(256);
    scenario.sides[0].work = vec![
        Work::new(Operation::Read, 1, 0),
        Work::new(Operation::Send, 1, 0),
        Work::new(Operation::Read, 1, 0),
        Work::new(Operation::Send, 1, 0),
    ];
    let mut world = World::new(&scenario);
    world.network.filter = Some(lose_once(|content| matches!(content, Content::Read(..))));
    let outcome = conclude(&mut world).unwrap();
    assert_eq!(outcome.endings, [None, None]);
    let counters = world.endpoints[0].requester.counters();
    assert_eq!((counters.implied_naks, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 4);
}
