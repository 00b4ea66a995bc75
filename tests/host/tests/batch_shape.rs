// SPDX-License-Identifier: GPL-2.0

//! Which packets leave together: what was put into one piece must come apart as it was.

use ferroce_core::batch::{BatchShape, Limits};

const HEADERS: u32 = 28;
const WIDE: Limits = Limits {
    bytes: 65535,
    packets: 64,
};

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

/// How the stack cuts a batch that is in one piece: by the length of its first packet.
fn cut(batch: &[u32]) -> Vec<u32> {
    let mut left: u32 = batch.iter().sum();
    let mut pieces = Vec::new();
    while left > 0 {
        let piece = left.min(batch[0]);
        pieces.push(piece);
        left -= piece;
    }
    pieces
}

#[test]
fn only_one_packet_follows_a_write_first() {
    // WRITE First has a RETH of 16 bytes.
    let write = [1056, 1040, 1040, 1040, 540];
    assert_eq!(
        batches(WIDE, &write),
        [vec![1056, 1040], vec![1040, 1040, 540]]
    );
}

#[test]
fn nothing_follows_a_shorter_packet() {
    assert_eq!(
        batches(WIDE, &[1040, 540, 540, 1040]),
        [vec![1040, 540], vec![540], vec![1040]]
    );
}

#[test]
fn a_batch_comes_apart_as_it_was_made() {
    let lens = [1056, 1040, 540];
    for count in 1..=6u32 {
        for choice in 0..3usize.pow(count) {
            let offered: Vec<u32> = (0..count)
                .map(|at| lens[choice / 3usize.pow(at) % 3])
                .collect();
            let made = batches(WIDE, &offered);
            assert_eq!(made.concat(), offered);
            for batch in made {
                assert_eq!(cut(&batch), batch, "of {offered:?}");
            }
        }
    }
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = |bytes, packets| Limits { bytes, packets };
    let sizes = |limits| {
        batches(limits, &[1000; 6])
            .iter()
            .map(Vec::len)
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(limits(HEADERS + 3000, 64)), [3, 3]);
    assert_eq!(sizes(limits(HEADERS + 2999, 64)), [2, 2, 2]);
    assert_eq!(sizes(limits(65535, 4)), [4, 2]);
    assert_eq!(sizes(limits(0, 1)), [1; 6]);
    assert_eq!(sizes(limits(65535, 0)), [1; 6]);
    assert!(!BatchShape::new(u32::MAX, 1, limits(u32::MAX - 1, 64)).takes(1));
}
