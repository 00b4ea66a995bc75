// SPDX-License-Identifier: GPL-2.0

//! A network that loses, doubles, holds up, reorders and changes what it carries.

use super::dice::Dice;
use super::frame::{varies, Content, Frame};
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
    /// The network changed more than it may.
    harmed: bool,
    content: Content,
    frame: Frame,
}

/// What became of something that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Carried,
    /// It will not, or too late.
    Lost,
}

/// Something that arrives.
#[derive(Debug)]
pub struct Arrival {
    pub to: usize,
    /// What, or `None` if the receiver dropped it.
    pub content: Option<Content>,
    pub sent: Content,
    /// What was sent before this and comes later, when that is said for the first time; and this
    /// one, if it comes too early or (then true stands beside it) too late.
    pub out_of_order: Vec<(Content, bool)>,
    /// The receiver took what was changed, or dropped what was whole.
    pub wrong: Option<&'static str>,
}

/// What the network did, for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Copies made.
    pub doubled: u64,
    /// Frames that were overtaken.
    pub overtaken: u64,
    /// Frames changed so that they must be dropped.
    pub harmed: u64,
    /// Frames changed where it must not matter.
    pub remarked: u64,
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

impl From<bool> for Treatment {
    /// It is lost, or not.
    fn from(lost: bool) -> Self {
        if lost {
            Treatment::Lose
        } else {
            Treatment::Usual
        }
    }
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

    /// Whether something is on its way.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// When the next arrives.
    pub fn next_at(&self) -> Option<u64> {
        self.flights.keys().next().map(|(at, _)| *at)
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

    /// Takes a frame that `from` sends, and what it says; tells whether it will arrive.
    pub fn send(&mut self, from: usize, now: u64, content: Content, frame: Frame) -> Fate {
        self.tally.sent += 1;
        let dark = self.is_dark(from, now);
        let filter = self.filter.as_mut();
        let treatment = filter.map_or(Treatment::Usual, |filter| filter(from, &content));
        let direction = &mut self.directions[from];
        direction.serial += 1;
        let serial = direction.serial;
        let mut dice = Dice::of(&[self.seed, 0x6e65_7400 + from as u64, serial]);
        let link = &direction.link;
        // The wire takes 50 ns for a packet and 0.1 ns for a byte.
        let wire_ns = match &frame {
            Frame::Packet { bytes, .. } => 50 + bytes.len() as u64 / 10,
            Frame::Segment(content) => 50 * u64::from(content.span()),
        };
        let wire_ns = wire_ns + u64::from(link.packet_ns) * u64::from(content.span());
        direction.free_at = direction.free_at.max(now) + wire_ns;
        let mut lost = dice.percent(link.loss);
        if direction.burst != 0 {
            direction.burst -= 1;
            lost = true;
        } else if lost {
            direction.burst = link.burst;
        }
        let harmed = dice.percent(link.corrupt);
        let doubled = dice.percent(link.duplicate) || matches!(treatment, Treatment::Double(_));
        let copies = 1 + u64::from(doubled);
        if lost || dark || treatment == Treatment::Lose {
            self.tally.lost += 1;
            return Fate::Lost;
        }
        // The jitter follows the time, so that it does not reorder by itself more than a little.
        let slow = Dice::of(&[self.seed, from as u64, now / (256 * US)])
            .below(u64::from(link.jitter) * US + 1);
        let (free_at, delay) = (direction.free_at, u64::from(link.delay) * US);
        let (reorder, depth) = (link.reorder, u64::from(link.depth) * US);
        // Who waits for what is so late takes it for lost.
        let mut fate = match treatment {
            Treatment::Delay(later) if later >= ROUND_TRIP => Fate::Lost,
            _ => Fate::Carried,
        };
        for copy in 0..copies {
            let mut frame = frame.clone();
            let mut harm = false;
            // The first copy decides the fate, so only that one may be harmed.
            if harmed && copy == 0 {
                harm = corrupt(&mut frame, &mut dice);
                if harm {
                    self.tally.harmed += 1;
                    fate = Fate::Lost;
                } else {
                    self.tally.remarked += 1;
                }
            }
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
                harmed: harm,
                content: content.clone(),
                frame,
            };
            self.flights.insert((at, self.number), flight);
        }
        fate
    }

    /// The next that arrives.
    pub fn take(&mut self) -> Option<Arrival> {
        let (_, flight) = self.flights.pop_first()?;
        let Flight {
            to,
            serial,
            original,
            harmed,
            content: sent,
            frame,
            ..
        } = flight;
        // Requests and responses of a direction are different streams.
        let kind = usize::from(sent.is_request());
        let arrived = &mut self.directions[1 - to].arrived[kind];
        let mut out_of_order = Vec::new();
        let mut is_early = false;
        for other in self.flights.values_mut() {
            let same = other.to == to && other.content.is_request() == sent.is_request();
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
            out_of_order.push((sent.clone(), is_late));
        }
        *arrived = serial.max(*arrived);
        let content = frame.open(to);
        let wrong = match (&content, harmed) {
            (Some(_), true) => Some("a changed packet was taken"),
            (None, false) => Some("a whole packet was dropped"),
            (Some(content), false) if *content != sent => Some("a packet says something else"),
            _ => None,
        };
        Some(Arrival {
            to,
            content,
            sent,
            out_of_order,
            wrong,
        })
    }

    /// Nothing that is on its way arrives.
    pub fn clear(&mut self) {
        self.flights.clear();
    }
}

/// Changes a packet; tells whether it must be dropped for it.
fn corrupt(frame: &mut Frame, dice: &mut Dice) -> bool {
    frame.seal();
    let Frame::Packet { bytes, .. } = frame else {
        return false;
    };
    if dice.percent(10) {
        // Cut short.
        let len = dice.below(bytes.len() as u64) as usize;
        bytes.truncate(len);
        return true;
    }
    // Up to three bits, which the CRC finds in packets of this length without exception.
    let before = bytes.clone();
    for _ in 0..=dice.below(3) {
        // Often in the headers, where it matters more.
        let range = if dice.percent(50) { 48 } else { bytes.len() };
        let at = dice.below(range.min(bytes.len()) as u64) as usize;
        bytes[at] ^= 1 << dice.below(8);
    }
    (0..bytes.len()).any(|at| bytes[at] != before[at] && !varies(at))
}
