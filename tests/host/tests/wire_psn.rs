// SPDX-License-Identifier: GPL-2.0

//! PSN arithmetic against that of integers.

use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::arbitrary::psn;
use proptest::prelude::*;

const SPACE: i64 = 1 << 24;
const HALF: i64 = SPACE / 2;

proptest! {
    /// A PSN is a number modulo the space; of two the one that is less than half of it ahead is the
    /// later one. That `add` and `sub` undo each other, and that "before" is an order within half
    /// the space, follows.
    #[test]
    fn a_psn_is_a_number_modulo_the_space(a in psn(), any in psn(), n: u32) {
        let number = i64::from(a.get());
        let modulo = |n: i64| n.rem_euclid(SPACE) as u32;
        prop_assert_eq!(a.add(n).get(), modulo(number + i64::from(n)));
        prop_assert_eq!(a.sub(n).get(), modulo(number - i64::from(n)));
        prop_assert_eq!(a.next(), a.add(1));
        let near = [-1, 0, 1, HALF - 1, HALF, HALF + 1].map(|by| Psn::new(modulo(number + by)));
        for b in near.into_iter().chain([any]) {
            let ahead = (i64::from(b.get()) - number + HALF).rem_euclid(SPACE) - HALF;
            prop_assert_eq!(i64::from(b.distance_from(a)), ahead);
            prop_assert_eq!(a.is_before(b), ahead > 0);
        }
        prop_assert_eq!(Psn::from_be_bytes(a.to_be_bytes()), a);
        prop_assert_eq!((Psn::new(a.get()), Psn::new(n).get()), (a, modulo(n.into())));
    }
}
