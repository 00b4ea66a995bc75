// SPDX-License-Identifier: GPL-2.0

//! Many random runs of a property, each from a seed of its own, which is all that it takes to see
//! it again.
//!
//! Proptest makes the values and shrinks them. What is added is that a run has a short name that is
//! printed when it fails:
//!
//! | variable | |
//! |---|---|
//! | `FERROCE_FRESH=77` | two thirds of the runs are others, which this number stands for |
//! | `FERROCE_MODEL_RUNS=1000000` | so many runs of all properties together, others each time |
//! | `FERROCE_MODEL_SEED=name:1f2e` | this run of this property, and no other |
//! | `FERROCE_MODEL_TRACE=1` | tell what happens in the run that failed |

use super::dice::Dice;
use super::world::TRACE;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::panic;
use std::sync::Once;

/// Runs of all properties together, if nobody says otherwise.
const RUNS: u64 = 15_000;

/// How many of these are others with `FERROCE_FRESH`.
const FRESH_RUNS: u64 = 10_000;

thread_local! {
    /// Panics of this thread are failures to be shrunk, not to be told.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

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
    if let Ok(wanted) = std::env::var("FERROCE_MODEL_SEED") {
        match wanted.split_once(':') {
            Some((property, seed)) if property == name => {
                run(name, parse(seed), 0, &strategy, &test)
            }
            Some(_) => {}
            None => panic!("FERROCE_MODEL_SEED is property:seed"),
        }
        return;
    }
    let mut number = 0;
    let mut runs = |runs: u64, first: u64| {
        let mut seeds = Dice::of(&[first]);
        for _ in 0..(runs * percent).div_ceil(100) {
            number += 1;
            run(name, seeds.throw(), number, &strategy, &test);
        }
    };
    if let Some(wanted) = variable("FERROCE_MODEL_RUNS") {
        return runs(wanted, RandomState::new().hash_one(name));
    }
    // A change is judged by the same runs as the last one, and by some that nobody has seen yet.
    let hash = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
    let own = name.bytes().fold(0, hash);
    match variable("FERROCE_FRESH") {
        None => runs(RUNS, own),
        Some(fresh) => {
            runs(RUNS - FRESH_RUNS, own);
            runs(FRESH_RUNS, Dice::of(&[own, fresh]).throw());
        }
    }
}

/// The number that a variable of the environment has.
///
/// # Panics
///
/// If it is no number.
pub fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

fn parse(seed: &str) -> u64 {
    u64::from_str_radix(seed, 16).expect("the seed of a run is a hexadecimal number")
}

/// One run; the number only tells how long it took to find a failure.
fn run<S: Strategy>(
    name: &str,
    seed: u64,
    number: u64,
    strategy: &S,
    test: &impl Fn(&S::Value) -> Result<(), String>,
) {
    let config = Config {
        cases: 1,
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..Config::default()
    };
    let bytes = Dice::of(&[seed]).bytes(32);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    silence();
    QUIET.set(true);
    let result = TestRunner::new_with_rng(config, rng)
        .run(strategy, |value| test(&value).map_err(TestCaseError::fail));
    QUIET.set(false);
    let Err(error) = result else {
        return;
    };
    let mut told = String::new();
    let _ = match error {
        TestError::Fail(reason, value) => {
            if std::env::var_os("FERROCE_MODEL_TRACE").is_some() {
                TRACE.set(true);
                let _ = test(&value);
                TRACE.set(false);
            }
            write!(told, "{reason}\n{value:?}")
        }
        TestError::Abort(reason) => write!(told, "{reason}"),
    };
    panic!(
        "run {number}: {told}\nto see it again: FERROCE_MODEL_SEED={name}:{seed:x} cargo test \
         -p ferroce-host-tests {name}"
    );
}

/// While values shrink, each failure would print a panic.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
}
