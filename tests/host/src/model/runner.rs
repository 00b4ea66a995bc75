// SPDX-License-Identifier: GPL-2.0

//! Many random runs of a property. Proptest makes the values, and shrinks the one that fails.
//!
//! | variable | |
//! |---|---|
//! | `FERROCE_FRESH=77` | two thirds of the runs are others, which this number stands for |
//! | `FERROCE_MODEL_RUNS=1000000` | so many runs of all properties together, others each time |
//! | `FERROCE_MODEL_TRACE=1` | tell what happens in the smallest run that fails |

use super::world::TRACE;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use std::hash::{BuildHasher, RandomState};

/// Runs of all properties together, if nobody says otherwise.
const RUNS: u64 = 15_000;

/// How many of these are others with `FERROCE_FRESH`.
const FRESH_RUNS: u64 = 10_000;

/// Runs `percent` of all runs of the property `name`.
///
/// # Panics
///
/// If one fails: with what is wrong, the smallest value found that shows it, and how to see it
/// again.
pub fn explore<S: Strategy>(
    name: &str,
    percent: u64,
    strategy: S,
    test: impl Fn(&S::Value) -> Result<(), String>,
) {
    // A change is judged by the same runs as the last one, and by some that nobody has seen yet.
    let (wanted, fresh) = (variable("FERROCE_MODEL_RUNS"), variable("FERROCE_FRESH"));
    let series = match (wanted, fresh) {
        (Some(runs), fresh) => {
            vec![(
                runs,
                fresh.unwrap_or_else(|| RandomState::new().hash_one(name)),
            )]
        }
        (None, None) => vec![(RUNS, 1)],
        (None, Some(fresh)) => vec![(RUNS - FRESH_RUNS, 1), (FRESH_RUNS, fresh)],
    };
    for (runs, seed) in series {
        let mut runner = TestRunner::new(Config {
            cases: (runs * percent).div_ceil(100) as u32,
            failure_persistence: None,
            max_shrink_iters: 50_000,
            rng_seed: RngSeed::Fixed(seed),
            ..Config::default()
        });
        let result = runner.run(&strategy, |value| test(&value).map_err(TestCaseError::fail));
        let Err(error) = result else {
            continue;
        };
        if let (TestError::Fail(_, value), true) = (&error, is_set("FERROCE_MODEL_TRACE")) {
            TRACE.set(true);
            let _ = test(value);
        }
        let set = match (wanted, fresh) {
            (Some(runs), _) => format!("FERROCE_FRESH={seed} FERROCE_MODEL_RUNS={runs} "),
            (None, Some(fresh)) => format!("FERROCE_FRESH={fresh} "),
            (None, None) => String::new(),
        };
        panic!("{error}\nto see it again: {set}cargo test -p ferroce-host-tests {name}");
    }
}

/// Whether the environment has a variable.
pub fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The number that a variable of the environment has.
///
/// # Panics
///
/// If it is no number.
pub fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number")))
}
