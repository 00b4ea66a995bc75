// SPDX-License-Identifier: GPL-2.0

//! Which packets leave together: what was put into one piece must come apart as it was.

use ferroce_core::batch::{BatchShape, Limits};

const HEADERS: u32 = 28;

/// The lengths that leave together, of packets that are offered one after the other.
fn batches(limits: Limits, lens: &[u32]) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = Vec::new();
    let mut open: Option<BatchShape> = None;
    for &len in lens {
        match &mut open {
            Some(shape) if shape.takes(len) => {
                assert!(shape.add(len));
                all.last_mut().unwrap().push(len);
                assert_eq!(usize::from(shape.packets()), all.last().unwrap().len());
            }
            _ => {
                open = Some(BatchShape::new(HEADERS, len, limits));
                all.push(vec![len]);
            }
        }
    }
    all
}

/// The stack cuts a batch that is in one piece by the length of its first packet. So nothing is
/// longer than that, and only the last is shorter; limits hold to the byte.
fn can_be(batch: &[u32], limits: Limits) -> bool {
    let (last, others) = batch.split_last().unwrap();
    let is_cut_right = others.iter().all(|len| *len == batch[0]) && *last <= batch[0];
    let bytes = HEADERS + batch.iter().sum::<u32>();
    is_cut_right && batch.len() <= limits.packets.into() && bytes <= limits.bytes
}

#[test]
fn a_batch_is_as_long_as_it_can_be_and_no_longer() {
    let lens = [1056, 1040, 540];
    for (bytes, packets) in [
        (65535, 64),
        (65535, 4),
        (HEADERS + 3 * 1040, 64),
        (HEADERS + 3 * 1040 - 1, 64),
        (0, 64),
        (65535, 0),
    ] {
        let limits = Limits { bytes, packets };
        for choice in 0..3usize.pow(6) {
            let offered: Vec<u32> = (0..6).map(|at| lens[choice / 3usize.pow(at) % 3]).collect();
            let made = batches(limits, &offered);
            assert_eq!(made.concat(), offered);
            for (batch, next) in made.iter().zip(made.iter().skip(1)) {
                let one_more = [&batch[..], &next[..1]].concat();
                assert!(!can_be(&one_more, limits), "{batch:?} of {offered:?}");
            }
            let right = |batch: &Vec<u32>| batch.len() == 1 || can_be(batch, limits);
            assert!(made.iter().all(right), "{made:?} of {offered:?}");
        }
    }
    let endless = Limits {
        bytes: u32::MAX - 1,
        packets: 64,
    };
    assert!(!BatchShape::new(u32::MAX, 1, endless).takes(1));
}
