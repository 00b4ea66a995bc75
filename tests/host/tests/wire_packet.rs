// SPDX-License-Identifier: GPL-2.0

//! Parsing and emitting are inverse, and hostile bytes never become an inconsistent packet.

use ferroce_core::wire::opcode::Opcode;
use ferroce_core::wire::packet::{parse, Headers, ParseError, MAX_HEADERS};
use ferroce_core::wire::{ICRC_LEN, MAX_PAYLOAD};
use ferroce_host_tests::arbitrary::headers;
use ferroce_host_tests::hostile::assert_consistent;
use ferroce_hostile::model::Service;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit((headers, payload_len) in headers()) {
        let mut out = [0x5a; MAX_HEADERS];
        let len = headers.emit(&mut out).unwrap();
        prop_assert_eq!(len, headers.headers_len());
        let total = len + payload_len + usize::from(headers.pad) + ICRC_LEN;
        // What is behind the headers does not matter, nor whether it is linear.
        let packet = parse(&out, total).unwrap();
        prop_assert_eq!(parse(&out[..len], total), Ok(packet));
        assert_consistent(&packet, total);
        prop_assert_eq!(Headers::from(&packet), headers);
        prop_assert_eq!((packet.payload_offset, packet.payload_len), (len, payload_len));
    }

    /// `emit` gives back the bytes that `parse` read, but for the bits that receivers ignore.
    #[test]
    fn emit_is_the_inverse_of_parse(
        mut bytes: [u8; MAX_HEADERS],
        opcode in 0u8..0x2c,
        total in 0usize..=MAX_HEADERS + MAX_PAYLOAD + 16,
    ) {
        bytes[0] = opcode;
        bytes[1] &= 0xf0;
        if let Ok(packet) = parse(&bytes, total) {
            assert_consistent(&packet, total);
            bytes[4] = 0;
            bytes[8] &= 0x81;
            let mut out = [0; MAX_HEADERS];
            let len = Headers::from(&packet).emit(&mut out).unwrap();
            prop_assert_eq!(&out[..len], &bytes[..len]);
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_consistent(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        total in prop_oneof![0usize..100, any::<usize>()],
    ) {
        if let Ok(packet) = parse(&bytes, total) {
            assert_consistent(&packet, total);
        }
    }

    #[test]
    fn emit_never_writes_beyond_its_buffer((headers, _) in headers(), room in 0..MAX_HEADERS) {
        let mut out = [0x5a; MAX_HEADERS];
        let emitted = headers.emit(&mut out[..room]);
        prop_assert_eq!(emitted.is_some(), room >= headers.headers_len());
        let written = emitted.unwrap_or(room);
        prop_assert!(out[written..].iter().all(|byte| *byte == 0x5a));
    }

    /// Any combination of extended headers: what is emitted parses, the rest is refused.
    #[test]
    fn emit_refuses_what_parse_would_not_give_back(
        (template, _) in headers(),
        opcode in ferroce_host_tests::arbitrary::opcode(),
        pad: u8,
    ) {
        let headers = Headers { opcode, pad, ..template };
        let info = opcode.info();
        let fits = headers.extension.kind() == info.extension
            && if info.has_payload() { pad < 4 } else { pad == 0 };
        let mut out = [0; MAX_HEADERS];
        let emitted = headers.emit(&mut out);
        prop_assert_eq!(emitted.is_some(), fits);
        if let Some(len) = emitted {
            // One word of payload and padding, if there may be some.
            let total = len + if info.has_payload() { 4 } else { 0 } + ICRC_LEN;
            prop_assert_eq!(Headers::from(&parse(&out, total).unwrap()), headers);
        }
    }
}

/// What the standard says about opcode, version, padding and length, in the words of the model of a
/// responder: the payload, or that it is no packet.
fn expected(opcode: u8, version: u8, pad: usize, total: usize) -> Option<usize> {
    let service = Service::with(opcode)?;
    service.form(opcode, version, pad, total).ok()
}

/// Every opcode, every length of a packet up to what a 9000-byte link carries, every pad count.
///
/// `head` is once as short as the caller may make it and once as long as the packet.
#[test]
fn every_opcode_length_and_pad() {
    const LONGEST: usize = 9000;
    let mut bytes = vec![0xa5; LONGEST];
    let mut accepted = 0u32;
    for opcode in 0..=u8::MAX {
        for pad in 0..4u8 {
            bytes[0] = opcode;
            bytes[1] = pad << 4;
            for total in 0..=LONGEST {
                let result = parse(&bytes[..total], total);
                let short = parse(&bytes[..total.min(MAX_HEADERS)], total);
                assert_eq!(result, short);
                match expected(opcode, 0, pad.into(), total) {
                    Some(payload) => {
                        let packet = result.unwrap();
                        assert_consistent(&packet, total);
                        assert_eq!(packet.opcode.as_u8(), opcode);
                        assert_eq!((packet.payload_len, packet.pad), (payload, pad));
                        accepted += 1;
                    }
                    None => assert!(result.is_err(), "{opcode:#x} {pad} {total}"),
                }
            }
        }
    }
    // 34 opcodes with 0..=4096 bytes of payload (each with its padding), 7 without; and 7 that are
    // not served, with anything that fits.
    assert_eq!(accepted, 34 * 4097 + 7 + 7 * (9000 - 12 - 4 + 1));
}

#[test]
fn every_second_byte() {
    for opcode in Opcode::ALL {
        for flags in 0..=u8::MAX {
            let mut bytes = [0; 64];
            bytes[0] = opcode.as_u8();
            bytes[1] = flags;
            let total = opcode.info().headers_len() + ICRC_LEN + 4;
            let (version, pad) = (flags & 15, usize::from((flags >> 4) & 3));
            let result = parse(&bytes, total);
            assert_eq!(
                result.ok().map(|packet| packet.payload_len),
                expected(opcode.as_u8(), version, pad, total)
            );
            if version != 0 {
                assert_eq!(result, Err(ParseError::BadVersion));
            }
        }
    }
}

/// A head that is shorter than the headers is an error, whatever the length says.
#[test]
fn no_head_is_too_short_to_refuse() {
    let bytes = [0; MAX_HEADERS];
    for opcode in Opcode::ALL {
        let mut bytes = bytes;
        bytes[0] = opcode.as_u8();
        for head in 0..opcode.info().headers_len() {
            for total in [head, 64, 1500, usize::MAX] {
                assert_eq!(parse(&bytes[..head], total), Err(ParseError::TooShort));
            }
        }
    }
}
