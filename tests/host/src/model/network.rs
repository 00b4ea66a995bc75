// SPDX-License-Identifier: GPL-2.0

//! A network that loses, doubles, holds up and reorders what it carries.

use super::content::Content;
use super::dice::{Chance, Dice};
use super::scenario::{Blackout, Link, Scenario};
use std::collections::BTreeMap;

/// Nanoseconds of a microsecond.
pub const US: u64 = 1000;

/// Nanoseconds in which everything that was on its way has arrived.
pub const ROUND_TRIP: u64 = 1000 * US;

/// Something on its way.
#[derive(Debug)]
struct Flight {
    to: usize,
    /// Counts what was sent in this direction.
    serial: u64,
    /// The first of the copies.
    original: bool,
    /// Something sent later arrived first, and this was said.
    overtaken: bool,
    content: Content,
}

/// Something that arrives.
#[derive(Debug)]
pub struct Arrival {
    pub to: usize,
    pub content: Content,
    /// What was sent before this and comes later, when that is said for the first time; and this
    /// one, if it comes too early or (then true stands beside it) too late.
    pub out_of_order: Vec<(Content, bool)>,
}

/// What the network did, for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Lost.
    pub lost: u64,
    /// Copies made.
    pub doubled: u64,
    /// How many were overtaken.
    pub overtaken: u64,
}

#[derive(Debug, Default)]
struct Direction {
    link: Link,
    serial: u64,
    /// The largest serials that arrived, of responses and of requests.
    arrived: [u64; 2],
    /// How many more are lost together.
    burst: u8,
    /// When the wire is free again.
    free_at: u64,
}

/// What a test has the network do with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// What its link does.
    Usual,
    Lose,
    /// It comes a second time, so many nanoseconds later.
    Double(u64),
    /// It comes so many nanoseconds later.
    Delay(u64),
}

/// A hook that says what becomes of something: the side that sends, and what.
pub type Filter = Box<dyn FnMut(usize, &Content) -> Treatment>;

/// Both directions.
pub struct Network {
    seed: u64,
    directions: [Direction; 2],
    blackouts: Vec<Blackout>,
    /// By time of arrival and a number.
    flights: BTreeMap<(u64, u64), Flight>,
    number: u64,
    pub tally: Tally,
    /// What a test wants to befall what.
    pub filter: Option<Filter>,
}

impl Network {
    /// A quiet one.
    pub fn new(scenario: &Scenario) -> Self {
        let directions = scenario.links.clone().map(|link| Direction {
            link,
            ..Direction::default()
        });
        Self {
            seed: scenario.seed,
            directions,
            blackouts: scenario.blackouts.clone(),
            flights: BTreeMap::new(),
            number: 0,
            tally: Tally::default(),
            filter: None,
        }
    }

    /// When the next arrives, where, and whether it is a request.
    pub fn next(&self) -> Option<(u64, usize, bool)> {
        let ((at, _), flight) = self.flights.first_key_value()?;
        Some((*at, flight.to, flight.content.is_request()))
    }

    /// Nanoseconds within which what comes to a side comes as one batch.
    pub fn gather(&self, to: usize) -> u64 {
        u64::from(self.directions[1 - to].link.gather) * US
    }

    fn is_dark(&self, from: usize, now: u64) -> bool {
        self.blackouts.iter().any(|blackout| {
            let begin = u64::from(blackout.from) * US;
            let end = begin + u64::from(blackout.length) * US;
            (begin..end).contains(&now) && blackout.side.is_none_or(|side| side == from)
        })
    }

    /// Takes what `from` sends; tells whether it will arrive while somebody waits for it.
    pub fn send(&mut self, from: usize, now: u64, content: Content) -> bool {
        let dark = self.is_dark(from, now);
        let filter = self.filter.as_mut();
        let treatment = filter.map_or(Treatment::Usual, |filter| filter(from, &content));
        let direction = &mut self.directions[from];
        direction.serial += 1;
        let serial = direction.serial;
        let mut dice = Dice::of(&[self.seed, 0x6e65_7400 + from as u64, serial]);
        let link = &direction.link;
        // The wire takes 50 ns for a packet and 0.1 ns for a byte.
        let packets = u64::from(content.span());
        let wire_ns =
            (50 + u64::from(link.packet_ns)) * packets + content.payload().len() as u64 / 10;
        direction.free_at = direction.free_at.max(now) + wire_ns;
        let mut lost = dice.percent(link.loss);
        if direction.burst != 0 {
            direction.burst -= 1;
            lost = true;
        } else if lost {
            direction.burst = link.burst;
        }
        let doubled = dice.percent(link.duplicate) || matches!(treatment, Treatment::Double(_));
        let copies = 1 + u64::from(doubled);
        if lost || dark || treatment == Treatment::Lose {
            self.tally.lost += 1;
            return false;
        }
        // The jitter follows the time, so that it does not reorder by itself more than a little.
        let slow = Dice::of(&[self.seed, from as u64, now / (256 * US)])
            .below(u64::from(link.jitter) * US + 1);
        let (free_at, delay) = (direction.free_at, u64::from(link.delay) * US);
        let (reorder, depth) = (link.reorder, u64::from(link.depth) * US);
        for copy in 0..copies {
            let mut at = free_at + delay + slow;
            if dice.percent(reorder) {
                at += dice.below(depth);
            }
            if copy != 0 {
                self.tally.doubled += 1;
                at += dice.below(20 * US);
            }
            at += match treatment {
                Treatment::Delay(later) => later,
                Treatment::Double(later) if copy != 0 => later,
                _ => 0,
            };
            self.number += 1;
            let flight = Flight {
                to: 1 - from,
                serial,
                original: copy == 0,
                overtaken: false,
                content: content.clone(),
            };
            self.flights.insert((at, self.number), flight);
        }
        !matches!(treatment, Treatment::Delay(later) if later >= ROUND_TRIP)
    }

    /// The next that arrives.
    pub fn take(&mut self) -> Option<Arrival> {
        let (_, flight) = self.flights.pop_first()?;
        let Flight {
            to,
            serial,
            original,
            content,
            ..
        } = flight;
        // Requests and responses of a direction are different streams.
        let kind = usize::from(content.is_request());
        let arrived = &mut self.directions[1 - to].arrived[kind];
        let mut out_of_order = Vec::new();
        let mut is_early = false;
        for other in self.flights.values_mut() {
            let same = other.to == to && other.content.is_request() == content.is_request();
            if same && other.original && other.serial < serial {
                is_early = true;
                if !std::mem::replace(&mut other.overtaken, true) {
                    self.tally.overtaken += 1;
                    out_of_order.push((other.content.clone(), false));
                }
            }
        }
        // A copy comes when the receiver is further on, which it may take for a new beginning.
        let is_late = serial < *arrived || !original;
        if is_early || is_late {
            out_of_order.push((content.clone(), is_late));
        }
        *arrived = serial.max(*arrived);
        Some(Arrival {
            to,
            content,
            out_of_order,
        })
    }
}
