// SPDX-License-Identifier: GPL-2.0

//! Limits of a device: counted objects.

use ferroce_core::quota::{
    ObjectKind,
    Permit,
    Quotas, //
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

const KINDS: [ObjectKind; 8] = [
    ObjectKind::Context,
    ObjectKind::Pd,
    ObjectKind::Ah,
    ObjectKind::Cq,
    ObjectKind::Qp,
    ObjectKind::Mr,
    ObjectKind::Mw,
    ObjectKind::Srq,
];

#[test]
fn as_many_objects_as_reported_and_not_one_more() {
    for kind in KINDS {
        let quotas = Quotas::new(u32::MAX);
        let mut permits: Vec<_> = (0..kind.limit())
            .map(|_| Permit::take(&quotas, kind).expect("below the limit"))
            .collect();
        assert!(Permit::take(&quotas, kind).is_none(), "{kind:?}");
        for other in KINDS {
            // A refusal counts nothing, and kinds are counted apart.
            let want = if other == kind { kind.limit() } else { 0 };
            assert_eq!(quotas.used(other), want, "{other:?} of {kind:?}");
        }
        permits.pop();
        assert!(
            Permit::take(&quotas, kind).is_some(),
            "{kind:?} after one went"
        );
        drop(permits);
        assert_eq!(quotas.used(kind), 0);
    }
}

#[test]
fn who_wants_fewer_has_fewer_and_nobody_more() {
    for kind in KINDS {
        let quotas = Quotas::new(3);
        let _three = [(); 3].map(|()| Permit::take(&quotas, kind).expect("below the limit"));
        assert!(Permit::take(&quotas, kind).is_none(), "{kind:?}");
        assert_eq!(quotas.limit(kind), 3);
        assert_eq!(Quotas::new(u32::MAX).limit(kind), kind.limit());
    }
}

#[test]
fn many_threads_together_get_no_more_than_the_limit() {
    let quotas = Arc::new(Quotas::new(u32::MAX));
    let most = AtomicU32::new(0);
    let limit = ObjectKind::Pd.limit();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let mut permits = Vec::new();
                    for _ in 0..limit / 2 {
                        permits.extend(Permit::take(quotas.clone(), ObjectKind::Pd));
                        most.fetch_max(quotas.used(ObjectKind::Pd), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() <= limit);
    assert_eq!(quotas.used(ObjectKind::Pd), 0);
    assert_eq!(Arc::strong_count(&quotas), 1);
}
