// SPDX-License-Identifier: GPL-2.0

//! The model network: two QPs of the pure transport, a clock, and a network between them that does
//! its worst, all of it decided by one value, the [`Scenario`].
//!
//! ```text
//!    Scenario ---> Plan: what must be seen                      strategy: any scenario
//!        |
//!        v
//!    World: clock, users                Endpoint: a QP, driven as the module drives it
//!        |                              Memory: region, buffers, receive queue
//!        |        Network: loses, doubles, reorders their Content
//!        |        Witness: listens beside a requester, and objects at once
//!        v
//!    oracle: what was seen against the plan
//! ```
//!
//! The oracle and the witness know the rules that a user, or one with a packet capture, could
//! hold a device to; they do not know how the transport keeps them.

pub mod content;
pub mod endpoint;
pub mod memory;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod runner;
pub mod scenario;
pub mod strategy;
pub mod witness;
pub mod world;

pub use ferroce_hostile::dice;
use network::Tally;
use oracle::Endings;
pub use scenario::Scenario;
use world::World;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The first request of each side that did not succeed, and how it ended.
    pub endings: Endings,
    pub tally: Tally,
    /// When the last request completed, in nanoseconds of the model.
    pub ended_at: u64,
}

/// Runs a scenario and holds it to every rule.
pub fn check(scenario: &Scenario) -> Result<Outcome, String> {
    let mut world = World::new(scenario);
    conclude(&mut world)
}

/// Runs scenarios one after the other with the same QPs, which are reset in between.
pub fn check_lives(scenarios: &[Scenario]) -> Result<(), String> {
    let mut before = None;
    for scenario in scenarios {
        let mut world = match before.take() {
            None => World::new(scenario),
            Some(before) => World::after(scenario, before),
        };
        conclude(&mut world)?;
        before = Some(world);
    }
    Ok(())
}

/// Runs a world to its end and holds it to every rule.
pub fn conclude(world: &mut World) -> Result<Outcome, String> {
    world.run()?;
    oracle::judge_rest(world)?;
    let completions = world.seen.iter().flatten();
    let ended_at = completions.map(|seen| seen.at).max().unwrap_or(0);
    world.finish();
    let endings = oracle::judge(world)?;
    Ok(Outcome {
        endings,
        tally: world.network.tally,
        ended_at,
    })
}
