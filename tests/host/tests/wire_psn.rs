// SPDX-License-Identifier: GPL-2.0

//! The laws of PSN arithmetic.

use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::arbitrary::psn;
use proptest::prelude::*;

const HALF: i32 = 1 << 23;

proptest! {
    #[test]
    fn sub_undoes_add(a in psn(), n: u32) {
        prop_assert_eq!(a.add(n).sub(n), a);
        prop_assert_eq!(a.sub(n).add(n), a);
    }

    #[test]
    fn add_is_additive_modulo_the_space(a in psn(), n: u32, m: u32) {
        prop_assert_eq!(a.add(n).add(m), a.add(m).add(n));
        prop_assert_eq!(a.add(n).add(m), a.add(n.wrapping_add(m)));
        prop_assert_eq!(a.add(n).get(), ((u64::from(a.get()) + u64::from(n)) % (1 << 24)) as u32);
        prop_assert_eq!(a.next(), a.add(1));
    }

    #[test]
    fn distance_measures_what_add_did(a in psn(), n in -HALF..HALF) {
        let b = if n < 0 { a.sub(n.unsigned_abs()) } else { a.add(n.unsigned_abs()) };
        prop_assert_eq!(b.distance_from(a), n);
    }

    #[test]
    fn distance_is_in_range_and_leads_back(a in psn(), b in psn()) {
        let distance = b.distance_from(a);
        prop_assert!((-HALF..HALF).contains(&distance));
        prop_assert_eq!(a.add(distance as u32), b);
        if distance != -HALF {
            prop_assert_eq!(a.distance_from(b), -distance);
        }
    }

    #[test]
    fn of_two_that_differ_exactly_one_is_before(a in psn(), b in psn()) {
        let opposite = a.distance_from(b) == -HALF;
        let before = [a.is_before(b), b.is_before(a)];
        prop_assert_eq!(before.iter().any(|b| *b), a != b && !opposite);
        prop_assert!(before != [true, true]);
    }

    /// Where all PSNs in play stand within half the ring, "before" is an order after all.
    #[test]
    fn before_is_transitive_within_a_window(a in psn(), n in 1u32..1 << 22, m in 1u32..1 << 22) {
        let (b, c) = (a.add(n), a.add(n).add(m));
        prop_assert!(a.is_before(b) && b.is_before(c) && a.is_before(c));
    }

    #[test]
    fn bytes_and_back(a in psn()) {
        prop_assert_eq!(Psn::from_be_bytes(a.to_be_bytes()), a);
        prop_assert_eq!(Psn::new(a.get()), a);
        prop_assert!(a.get() < Psn::SPACE);
    }
}
