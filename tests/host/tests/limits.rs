// SPDX-License-Identifier: GPL-2.0

//! Limits of a device: counted objects.

use ferroce_core::quota::ObjectKind::{self, Ah, Context, Cq, Mr, Mw, Pd, Qp, Srq};
use ferroce_core::quota::{Permit, Quotas};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Arc;

const KINDS: [ObjectKind; 8] = [Context, Pd, Ah, Cq, Qp, Mr, Mw, Srq];

#[test]
fn as_many_objects_as_reported_and_not_one_more() {
    for (kind, most) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, 3), (kind, u32::MAX)])
    {
        let quotas = Quotas::new(most);
        assert_eq!(quotas.limit(kind), kind.limit().min(most));
        let mut permits: Vec<_> = (0..quotas.limit(kind))
            .map(|_| Permit::take(&quotas, kind).expect("below the limit"))
            .collect();
        assert!(Permit::take(&quotas, kind).is_none(), "{kind:?}");
        for other in KINDS {
            // A refusal counts nothing, and kinds are counted apart.
            let want = if other == kind { quotas.limit(kind) } else { 0 };
            assert_eq!(quotas.used(other), want, "{other:?} of {kind:?}");
        }
        permits.pop();
        assert!(Permit::take(&quotas, kind).is_some(), "{kind:?} after one");
        drop(permits);
        assert_eq!(quotas.used(kind), 0);
    }
}

#[test]
fn many_threads_together_get_no_more_than_the_limit() {
    let (quotas, most) = (Arc::new(Quotas::new(u32::MAX)), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let mut permits = Vec::new();
                    for _ in 0..Pd.limit() / 2 {
                        permits.extend(Permit::take(quotas.clone(), Pd));
                        most.fetch_max(quotas.used(Pd), Relaxed);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() <= Pd.limit());
    assert_eq!((quotas.used(Pd), Arc::strong_count(&quotas)), (0, 1));
}
