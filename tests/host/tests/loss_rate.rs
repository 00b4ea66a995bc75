// SPDX-License-Identifier: GPL-2.0

//! What loss costs: messages of 1 MiB over a path with a round trip of 5 ms, without loss and with
//! it. The goodput of the one is bounded by that of the other, and the packets that are sent again
//! by those that were lost.

use ferroce_core::operation::Operation;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::content::Content;
use ferroce_host_tests::model::network::Treatment;
use ferroce_host_tests::model::runner::explore;
use ferroce_host_tests::model::scenario::{Link, Scenario, Work};
use ferroce_host_tests::model::world::World;
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// Messages of a run.
const MESSAGES: usize = 16;

/// Bytes of a message.
const LENGTH: u32 = 1 << 20;

/// Most packets in flight.
const WINDOW: u64 = 1024;

/// An MTU, and the nanoseconds that the wire takes for a packet.
const FAST: (u32, u32) = (4096, 40_000);
const SLOW: (u32, u32) = (1024, 16_000);

/// What a run came to.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Nanoseconds until the last completion.
    took: u64,
    /// Packets that the network lost.
    lost: u64,
    /// Packets that were sent again, probes included.
    again: u64,
    /// ACK timeouts.
    timeouts: u32,
}

/// What is done to a link.
type Spoil = fn(&mut Link);

/// What the two do with packets behind a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peers {
    /// They keep them.
    Keep,
    /// They drop them, and say of each that there is a gap.
    Drop,
    /// They say it once.
    Terse,
}

fn run(op: Operation, (mtu, packet_ns): (u32, u32), peers: Peers, spoil: Spoil) -> Run {
    let mut scenario = Scenario::calm(mtu);
    let packets = u16::try_from(LENGTH / mtu).expect("few");
    scenario.sides[0].work = vec![Work::new(op, packets, 0); MESSAGES];
    for side in &mut scenario.sides {
        side.timeout = 14;
        (side.keeps, side.terse) = (peers == Peers::Keep, peers == Peers::Terse);
        (side.max_rd_atomic, side.max_dest_rd_atomic) = (16, 16);
    }
    for link in &mut scenario.links {
        (link.delay, link.packet_ns) = (2500, packet_ns);
        spoil(link);
    }
    let mut world = World::new(&scenario);
    let outcome = conclude(&mut world).unwrap_or_else(|wrong| panic!("{wrong} in {scenario:?}"));
    assert_eq!(outcome.endings, [None, None]);
    let counters = world.endpoints[0].requester.counters();
    Run {
        took: outcome.ended_at,
        lost: outcome.tally.lost,
        again: (counters.retransmitted + counters.tail_probes).into(),
        timeouts: counters.timeouts,
    }
}

/// Both runs, and the goodput of the second in parts of that of the first.
fn compare(op: Operation, wire: (u32, u32), peers: Peers, spoil: Spoil) -> (f64, Run, String) {
    let calm = run(op, wire, peers, |_| ());
    let spoilt = run(op, wire, peers, spoil);
    let part = calm.took as f64 / spoilt.took as f64;
    let told = format!("{op:?} {wire:?} {peers:?}, {part:.2}, {spoilt:?}");
    println!("{told}");
    let in_vain = (calm.again, calm.timeouts, spoilt.timeouts);
    assert_eq!(in_vain, (0, 0, 0), "{told}");
    (part, spoilt, told)
}

/// One packet in a hundred is lost, both ways.
#[test]
fn goodput_at_one_percent() {
    for (wire, go_back) in [(FAST, 0.25), (SLOW, 0.15)] {
        for op in [Operation::Write, Operation::Send, Operation::Read] {
            for peers in [Peers::Drop, Peers::Terse, Peers::Keep] {
                let (part, lossy, told) = compare(op, wire, peers, |link| link.loss = 1);
                if peers == Peers::Keep {
                    assert!(part > 0.85 && lossy.again <= lossy.lost, "{told}");
                } else {
                    assert!(part > go_back, "{told}");
                }
            }
        }
    }
}

/// Loss of five in a hundred, alone and in bursts, and packets that overtake others, cost more, but
/// no ACK timeout, and nothing much is sent in vain.
#[test]
fn goodput_degrades_gently() {
    let spoils: [(f64, Spoil); 3] = [
        (0.5, |link| link.loss = 5),
        (0.4, |link| (link.loss, link.burst) = (1, 8)),
        (0.85, |link| (link.reorder, link.depth) = (10, 2000)),
    ];
    for (least, spoil) in spoils {
        let (part, spoilt, told) = compare(Operation::Write, FAST, Peers::Keep, spoil);
        assert!(part > least, "{told}");
        assert!(spoilt.again <= 2 * spoilt.lost + 400, "{told}");
    }
}

prop_compose! {
    /// Messages of one kind over a path that loses packets alone or in bursts, both ways.
    fn losing()(
        seed in any::<u64>().no_shrink(),
        op in prop_oneof![Just(Operation::Write), Just(Operation::Send), Just(Operation::Read)],
        messages in vec(1u16..300, 1..8),
        loss in [0u8..=10, 0u8..=10],
        burst in [0u8..8, 0u8..8],
        // A round trip behind a window is shorter than half of what is assumed before one was
        // measured: a NAK that crossed a repetition is known as such.
        delay in 5u16..100,
        packet_ns in 100u32..1000,
    ) -> Scenario {
        let mut scenario = Scenario::calm(1024);
        // Memory is never scarce with an odd one.
        scenario.seed = seed | 1;
        scenario.sides[0].work = messages.iter().map(|n| Work::new(op, *n, 0)).collect();
        for side in &mut scenario.sides {
            (side.timeout, side.max_rd_atomic, side.max_dest_rd_atomic) = (14, 16, 16);
        }
        for (number, link) in scenario.links.iter_mut().enumerate() {
            (link.delay, link.packet_ns) = (delay, packet_ns);
            (link.loss, link.burst) = (loss[number], burst[number]);
        }
        scenario
    }
}

/// What is sent again is bounded by what was lost. An ACK timeout may cost all once more: the peer
/// was not heard.
#[test]
fn sent_again_for_a_loss() {
    explore("sent_again_for_a_loss", 2, losing(), |scenario| {
        let packets = scenario.sides[0]
            .work
            .iter()
            .map(|work| u64::from(work.packets));
        let packets: u64 = packets.sum();
        for peers in [Peers::Keep, Peers::Drop, Peers::Terse] {
            let mut scenario = scenario.clone();
            for side in &mut scenario.sides {
                (side.keeps, side.terse) = (peers == Peers::Keep, peers == Peers::Terse);
            }
            let mut world = World::new(&scenario);
            let sent = Rc::new(Cell::new(0));
            let count = sent.clone();
            world.network.filter = Some(Box::new(move |_, content| {
                if let Content::Request(_, payload) | Content::Read(_, payload) = content {
                    count.set(count.get() + u64::from(!payload.is_empty()));
                }
                Treatment::Usual
            }));
            let outcome = conclude(&mut world)?;
            let again = sent.get().saturating_sub(packets);
            let lost = outcome.tally.lost;
            let timeouts = u64::from(world.endpoints[0].requester.counters().timeouts);
            let most = match peers {
                Peers::Keep => lost + lost / 2 + 16 + timeouts * packets,
                // What was in flight, and the probe that told.
                Peers::Drop | Peers::Terse => (lost + timeouts) * (packets.min(WINDOW) + 1),
            };
            if again > most {
                return Err(format!(
                    "{again} packets sent again for {lost} lost and {timeouts} timeouts: {peers:?}"
                ));
            }
        }
        Ok(())
    });
}
