// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A packet as one checked value: [`parse`] from bytes, [`Headers::emit`] back to bytes.
//!
//! The two are inverse: what `emit` writes, `parse` reads back unchanged, and the parser accepts
//! nothing that `emit` could not have written but for bits that receivers ignore (reserved bits,
//! and those of congestion notification).

use super::bth::Bth;
use super::headers::{
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Feth,
    ImmDt,
    Reth, //
};
use super::opcode::{
    ExtensionKind,
    Opcode,
    OpcodeInfo,
    PayloadRule, //
};
use super::psn::Psn;
use super::{
    DEFAULT_PKEY,
    ICRC_LEN,
    MAX_PAYLOAD, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Most bytes that the BTH and the extended headers of an opcode take.
pub const MAX_HEADERS: usize = {
    let mut max = 0;
    let mut rest = Opcode::ALL;
    while let [opcode, tail @ ..] = rest {
        let len = opcode.info().headers_len();
        if len > max {
            max = len;
        }
        rest = tail;
    }
    max
};

/// Bytes of [`ExtensionKind::Reserved`].
const RESERVED: usize = ExtensionKind::Reserved.bytes();

/// The extended headers of a packet. Nothing about what they say was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extension {
    /// None.
    #[default]
    None,
    /// Immediate data in the order of the wire.
    Imm([u8; 4]),
    /// A RETH.
    Reth(Reth),
    /// A RETH and immediate data.
    RethImm(Reth, [u8; 4]),
    /// An AETH.
    Aeth(Aeth),
    /// A DETH.
    Deth(Deth),
    /// A DETH and immediate data.
    DethImm(Deth, [u8; 4]),
    /// An IETH: the key that is to be invalidated.
    Ieth(u32),
    /// An AtomicETH.
    Atomic(AtomicEth),
    /// An AETH and an AtomicAckETH.
    AtomicAck(Aeth, AtomicAckEth),
    /// A FETH and a RETH.
    Flush(Feth, Reth),
    /// Bytes without a meaning.
    Reserved,
}

impl Extension {
    /// Which one it is.
    #[inline]
    pub const fn kind(&self) -> ExtensionKind {
        match self {
            Extension::None => ExtensionKind::None,
            Extension::Imm(_) => ExtensionKind::Imm,
            Extension::Reth(_) => ExtensionKind::Reth,
            Extension::RethImm(..) => ExtensionKind::RethImm,
            Extension::Aeth(_) => ExtensionKind::Aeth,
            Extension::Deth(_) => ExtensionKind::Deth,
            Extension::DethImm(..) => ExtensionKind::DethImm,
            Extension::Ieth(_) => ExtensionKind::Ieth,
            Extension::Atomic(_) => ExtensionKind::Atomic,
            Extension::AtomicAck(..) => ExtensionKind::AtomicAck,
            Extension::Flush(..) => ExtensionKind::Flush,
            Extension::Reserved => ExtensionKind::Reserved,
        }
    }

    /// The RETH, if there is one, and no FETH before it.
    #[inline]
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Extension::Reth(reth) | Extension::RethImm(reth, _) => Some(*reth),
            _ => None,
        }
    }

    /// The immediate data, if there is some.
    #[inline]
    pub const fn imm(&self) -> Option<[u8; 4]> {
        match self {
            Extension::Imm(imm) | Extension::RethImm(_, imm) | Extension::DethImm(_, imm) => {
                Some(*imm)
            }
            _ => None,
        }
    }

    /// The key to be invalidated, if there is one.
    #[inline]
    pub const fn invalidated(&self) -> Option<u32> {
        match self {
            Extension::Ieth(key) => Some(*key),
            _ => None,
        }
    }

    /// The AETH, if there is one.
    #[inline]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Extension::Aeth(aeth) | Extension::AtomicAck(aeth, _) => Some(*aeth),
            _ => None,
        }
    }

    /// The AtomicETH, if there is one.
    #[inline]
    pub const fn atomic(&self) -> Option<AtomicEth> {
        match self {
            Extension::Atomic(atomic) => Some(*atomic),
            _ => None,
        }
    }

    /// The FETH and the RETH behind it, if there are some.
    #[inline]
    pub const fn flush(&self) -> Option<(Feth, Reth)> {
        match self {
            Extension::Flush(feth, reth) => Some((*feth, *reth)),
            _ => None,
        }
    }

    /// The original value of an atomic operation, if there is an AtomicAckETH.
    #[inline]
    pub fn original(&self) -> Option<u64> {
        match self {
            Extension::AtomicAck(_, original) => Some(original.original()),
            _ => None,
        }
    }

    /// The DETH, if there is one.
    #[inline]
    pub const fn deth(&self) -> Option<Deth> {
        match self {
            Extension::Deth(deth) | Extension::DethImm(deth, _) => Some(*deth),
            _ => None,
        }
    }

    /// Reads those of an opcode from the front of `bytes`.
    #[inline]
    fn parse(kind: ExtensionKind, bytes: &mut &[u8]) -> Result<Self, ParseError> {
        Ok(match kind {
            ExtensionKind::None => Extension::None,
            ExtensionKind::Imm => Extension::Imm(take::<ImmDt>(bytes)?.bytes),
            ExtensionKind::Reth => Extension::Reth(take(bytes)?),
            ExtensionKind::RethImm => Extension::RethImm(take(bytes)?, take::<ImmDt>(bytes)?.bytes),
            ExtensionKind::Aeth => Extension::Aeth(take(bytes)?),
            ExtensionKind::Deth => Extension::Deth(take(bytes)?),
            ExtensionKind::DethImm => Extension::DethImm(take(bytes)?, take::<ImmDt>(bytes)?.bytes),
            ExtensionKind::Ieth => Extension::Ieth(u32::from_be_bytes(take::<ImmDt>(bytes)?.bytes)),
            ExtensionKind::Atomic => Extension::Atomic(take(bytes)?),
            ExtensionKind::AtomicAck => Extension::AtomicAck(take(bytes)?, take(bytes)?),
            ExtensionKind::Flush => {
                // Receivers do not look at reserved bits.
                let feth: Feth = take(bytes)?;
                Extension::Flush(feth.plain(), take(bytes)?)
            }
            ExtensionKind::Reserved => {
                let _: [u8; RESERVED] = take(bytes)?;
                Extension::Reserved
            }
        })
    }

    /// Writes them to the front of `out` and returns what is behind them.
    #[inline(always)]
    fn emit<'a>(&self, out: &'a mut [u8]) -> Option<&'a mut [u8]> {
        match self {
            Extension::None => Some(out),
            Extension::Imm(bytes) => put(out, bytes),
            Extension::Reth(reth) => put(out, reth),
            Extension::RethImm(reth, bytes) => put(put(out, reth)?, bytes),
            Extension::Aeth(aeth) => put(out, aeth),
            Extension::Deth(deth) => put(out, deth),
            Extension::DethImm(deth, bytes) => put(put(out, deth)?, bytes),
            Extension::Ieth(key) => put(out, &key.to_be_bytes()),
            Extension::Atomic(atomic) => put(out, atomic),
            Extension::AtomicAck(aeth, original) => put(put(out, aeth)?, original),
            Extension::Flush(feth, reth) => put(put(out, feth)?, reth),
            Extension::Reserved => put(out, &[0u8; RESERVED]),
        }
    }
}

/// A received packet, from the BTH to the ICRC.
///
/// # Invariants
///
/// - The `extension` is of the kind that the opcode's row of the table names.
/// - `payload_offset + payload_len + pad + ICRC_LEN` is the length of the UDP payload; no term is
///   larger than that length, `pad` is at most 3, and `payload_len + pad` is a multiple of 4.
/// - `payload_len` is at most [`MAX_PAYLOAD`], and 0 together with `pad` if the opcode has no
///   payload. Of an opcode that is not served the payload is all
///   that follows the BTH, however long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The opcode.
    pub opcode: Opcode,
    /// The receiver shall raise a solicited event.
    pub solicited: bool,
    /// The responder shall answer.
    pub ack_req: bool,
    /// The sender keeps packets that arrive behind a gap.
    pub keeps: bool,
    /// Path migration state.
    pub migreq: bool,
    /// Partition key.
    pub pkey: u16,
    /// The QP the packet is for, below 2^24.
    pub dest_qpn: u32,
    /// Sequence number.
    pub psn: Psn,
    /// The extended headers.
    pub extension: Extension,
    /// Offset of the payload from the BTH, in bytes.
    pub payload_offset: usize,
    /// Bytes of payload, without padding and ICRC.
    pub payload_len: usize,
    /// Bytes of padding behind the payload.
    pub pad: u8,
}

/// Why bytes are not a packet. Each is a reason to drop and has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The headers that the opcode has, its padding and the ICRC do not fit.
    TooShort,
    /// The transport header version is not 0.
    BadVersion,
    /// The opcode is reserved, or not served here.
    UnknownOpcode,
    /// There is padding although the opcode has no payload.
    BadPad,
    /// Payload and padding together are not a multiple of 4 bytes.
    BadLength,
    /// There is payload although the opcode has none.
    UnexpectedPayload,
    /// The payload is larger than the largest path MTU.
    TooLong,
}

/// Reads a header from the front of `bytes`, which it moves behind the header.
#[inline]
fn take<T: FromBytes + KnownLayout + Immutable>(bytes: &mut &[u8]) -> Result<T, ParseError> {
    match T::read_from_prefix(bytes) {
        Ok((header, rest)) => {
            *bytes = rest;
            Ok(header)
        }
        Err(_) => Err(ParseError::TooShort),
    }
}

/// Parses the UDP payload of a packet.
///
/// `udp_payload_len` is its length, ICRC included. `head` is a linear prefix of it, beginning at
/// the BTH: all of it, or at least [`MAX_HEADERS`] bytes. Bytes of `head` beyond
/// `udp_payload_len` (link-layer padding) are not looked at.
///
/// The checks are those of IBTA 9.6.1 that need no QP. The ICRC is not checked here.
#[inline]
pub fn parse(head: &[u8], udp_payload_len: usize) -> Result<Packet, ParseError> {
    let mut rest = head.get(..udp_payload_len).unwrap_or(head);
    let bth: Bth = take(&mut rest)?;
    if bth.version() != 0 {
        return Err(ParseError::BadVersion);
    }
    let opcode = bth.opcode().ok_or(ParseError::UnknownOpcode)?;
    let info = opcode.info();

    let extension = Extension::parse(info.extension, &mut rest)?;
    let payload_offset = info.headers_len();
    let pad = bth.pad();
    let payload_len = payload_len(&info, udp_payload_len, pad)?;
    Ok(Packet {
        opcode,
        solicited: bth.solicited(),
        ack_req: bth.ack_req(),
        keeps: bth.keeps(),
        migreq: bth.migreq(),
        pkey: bth.pkey(),
        dest_qpn: bth.dest_qp(),
        psn: bth.psn(),
        extension,
        payload_offset,
        payload_len,
        pad,
    })
}

/// The payload bytes of a packet of `total` bytes, if the lengths agree with the opcode.
#[inline]
fn payload_len(info: &OpcodeInfo, total: usize, pad: u8) -> Result<usize, ParseError> {
    let padded = total
        .checked_sub(info.headers_len())
        .and_then(|rest| rest.checked_sub(ICRC_LEN))
        .ok_or(ParseError::TooShort)?;
    let payload = padded
        .checked_sub(usize::from(pad))
        .ok_or(ParseError::TooShort)?;
    if !info.has_payload() {
        if pad != 0 {
            return Err(ParseError::BadPad);
        }
        if payload != 0 {
            return Err(ParseError::UnexpectedPayload);
        }
    }
    if padded % 4 != 0 {
        return Err(ParseError::BadLength);
    }
    if payload > MAX_PAYLOAD && info.payload != PayloadRule::Opaque {
        return Err(ParseError::TooLong);
    }
    Ok(payload)
}

/// Bytes of padding that follow a payload of `payload_len` bytes (IBTA 9.2, PadCnt).
#[inline]
pub const fn pad_for(payload_len: usize) -> u8 {
    // Of the negated length only the low two bits stay, so the cast loses nothing.
    (payload_len.wrapping_neg() & 3) as u8
}

/// Bytes of a packet from the BTH to the ICRC.
#[inline]
pub const fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    // The payload is at most the MTU, and so small that no sum can wrap.
    opcode
        .info()
        .headers_len()
        .wrapping_add(payload_len)
        .wrapping_add(pad_for(payload_len) as usize)
        .wrapping_add(ICRC_LEN)
}

/// The BTH and the extended headers of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The opcode.
    pub opcode: Opcode,
    /// The receiver shall raise a solicited event.
    pub solicited: bool,
    /// The responder shall answer.
    pub ack_req: bool,
    /// The sender keeps packets that arrive behind a gap.
    pub keeps: bool,
    /// Path migration state.
    pub migreq: bool,
    /// Partition key.
    pub pkey: u16,
    /// The QP the packet is for; the low 24 bits count.
    pub dest_qpn: u32,
    /// Sequence number.
    pub psn: Psn,
    /// The extended headers, of the kind that the opcode has.
    pub extension: Extension,
    /// Bytes of padding behind the payload, 0 to 3: see [`pad_for`].
    pub pad: u8,
}

impl Headers {
    /// Headers of a packet without extended headers and payload, in the default partition.
    ///
    /// MigReq is set, as adapters do: without path migration a connection counts as migrated.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            ack_req: false,
            keeps: false,
            migreq: true,
            pkey: DEFAULT_PKEY,
            dest_qpn,
            psn,
            extension: Extension::None,
            pad: 0,
        }
    }

    /// Bytes that [`Self::emit`] writes.
    #[inline]
    pub const fn headers_len(&self) -> usize {
        self.opcode.info().headers_len()
    }

    /// Writes the headers to the front of `out` and returns how many bytes they take.
    ///
    /// `None` if they do not fit, if the extended headers are not exactly those of the opcode, if
    /// `pad` is more than 3, or not 0 for an opcode without payload. Then the content of `out` is
    /// unspecified.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let info = self.opcode.info();
        if info.extension != self.extension.kind()
            || self.pad > 3
            || (self.pad != 0 && !info.has_payload())
        {
            return None;
        }

        let mut bth = Bth::new(self.opcode, self.pkey, self.dest_qpn, self.psn);
        bth.set_solicited(self.solicited);
        bth.set_ack_req(self.ack_req);
        bth.set_keeps(self.keeps);
        bth.set_migreq(self.migreq);
        bth.set_pad(self.pad);
        if matches!(self.extension, Extension::Reserved) {
            // IBTA A17.9.3: what makes a notification one.
            bth.set_becn(true);
        }

        self.extension.emit(put(out, &bth)?)?;
        Some(info.headers_len())
    }
}

/// Writes a header to the front of `out` and returns what is behind it.
#[inline]
fn put<'a, T: IntoBytes + Immutable>(out: &'a mut [u8], header: &T) -> Option<&'a mut [u8]> {
    let (front, rest) = out.split_at_mut_checked(size_of::<T>())?;
    header.write_to(front).ok()?;
    Some(rest)
}

impl From<&Packet> for Headers {
    #[inline]
    fn from(packet: &Packet) -> Self {
        Self {
            opcode: packet.opcode,
            solicited: packet.solicited,
            ack_req: packet.ack_req,
            keeps: packet.keeps,
            migreq: packet.migreq,
            pkey: packet.pkey,
            dest_qpn: packet.dest_qpn,
            psn: packet.psn,
            extension: packet.extension,
            pad: packet.pad,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_packet))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;
    use crate::core::wire::headers::AethSyndrome;

    /// A WRITE Only with Immediate of 5 bytes: all headers that a request can have, and padding.
    const WRITE: [u8; 32] = [
        0x0b, 0xf0, 0xff, 0xff, 0, 0, 0x12, 0x34, 0x80, 0, 0x56, 0x78, // BTH
        0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 0, 0, 0, 5, // RETH
        0xca, 0xfe, 0xba, 0xbe, // ImmDt
    ];

    fn write_headers() -> Headers {
        let mut headers = Headers::new(Opcode::RcWriteOnlyImm, 0x1234, Psn::new(0x5678));
        headers.solicited = true;
        headers.ack_req = true;
        let reth = Reth::new(0xdead_beef, 0x0102_0304, 5);
        headers.extension = Extension::RethImm(reth, [0xca, 0xfe, 0xba, 0xbe]);
        headers.pad = pad_for(5);
        headers
    }

    fn ack_headers() -> Headers {
        let mut headers = Headers::new(Opcode::RcAcknowledge, 7, Psn::new(9));
        headers.extension = Extension::Aeth(Aeth::new(AethSyndrome::Ack { credits: 31 }, 3));
        headers
    }

    #[test]
    fn emits_the_bytes() {
        let mut out = [0xaa; 40];
        assert_eq!(write_headers().emit(&mut out), Some(32));
        assert_eq!(out[..32], WRITE);
        assert_eq!(out[32..], [0xaa; 8]);
        assert_eq!(ack_headers().emit(&mut out), Some(16));
        assert_eq!(
            out[..16],
            [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, 9, 0x1f, 0, 0, 3]
        );
    }

    #[test]
    fn parses_the_bytes() {
        let packet = parse(&WRITE, 32 + 5 + 3 + 4).unwrap();
        assert_eq!(Headers::from(&packet), write_headers());
        assert_eq!((packet.payload_offset, packet.payload_len), (32, 5));
        assert_eq!((packet.pad, packet.dest_qpn), (3, 0x1234));
    }

    #[test]
    fn names_what_is_wrong() {
        let with = |at: usize, byte: u8, len: usize| {
            let mut bytes = WRITE;
            bytes[at] = byte;
            parse(&bytes, len)
        };
        assert_eq!(with(1, 0xf1, 44), Err(ParseError::BadVersion));
        assert_eq!(with(0, 0x2c, 44), Err(ParseError::UnknownOpcode));
        assert_eq!(with(0, 0x44, 44), Err(ParseError::UnknownOpcode));
        // The bytes behind the BTH of an unsupported request are not parsed.
        let opaque = with(0, 0x1e, 28 + 4096 + 16).unwrap();
        assert_eq!((opaque.payload_offset, opaque.payload_len), (12, 4121));
        // Not even the padding is there; less than a header; a multiple of 4 it is not.
        assert_eq!(with(1, 0xf0, 36), Err(ParseError::TooShort));
        assert_eq!(with(1, 0xc0, 35), Err(ParseError::TooShort));
        assert_eq!(with(1, 0xf0, 45), Err(ParseError::BadLength));
        // The largest payload, and one more.
        assert_eq!(with(1, 0xc0, 36 + 4096).unwrap().payload_len, 4096);
        assert_eq!(with(1, 0xc0, 36 + 4100), Err(ParseError::TooLong));
        assert_eq!(with(1, 0xf0, 36 + 4100), Err(ParseError::TooLong));
        // A READ request has neither payload nor padding.
        assert_eq!(with(0, 0x0c, 32), Err(ParseError::TooShort));
        assert_eq!(with(0, 0x0c, 36), Err(ParseError::BadPad));
        let mut read = WRITE;
        read[0] = 0x0c;
        read[1] = 0x40;
        assert!(parse(&read, 32).is_ok());
        assert_eq!(parse(&read, 36), Err(ParseError::UnexpectedPayload));
        assert_eq!(parse(&read, 33), Err(ParseError::UnexpectedPayload));
    }

    #[test]
    fn a_short_head_is_not_read_beyond() {
        assert_eq!(parse(&WRITE[..31], 44), Err(ParseError::TooShort));
        assert_eq!(parse(&[], 0), Err(ParseError::TooShort));
        // Bytes behind the UDP payload are none of ours.
        assert_eq!(parse(&WRITE, 11), Err(ParseError::TooShort));
        assert_eq!(parse(&WRITE, 31), Err(ParseError::TooShort));
        assert_eq!(parse(&[0xff; 32], 11), Err(ParseError::TooShort));
    }

    #[test]
    fn refuses_to_emit_what_would_not_parse() {
        let mut out = [0; 32];
        let refused = |change: fn(&mut Headers)| {
            let mut headers = write_headers();
            change(&mut headers);
            headers.emit(&mut [0; 64]).is_none()
        };
        let aeth = |h: &mut Headers| {
            h.extension = Extension::Aeth(Aeth::new(AethSyndrome::Ack { credits: 0 }, 0));
        };
        assert!(refused(|h| h.extension = Extension::None));
        assert!(refused(|h| h.extension = Extension::Imm([0; 4])));
        assert!(refused(|h| h.extension = Extension::Reth(Reth::default())));
        assert!(refused(aeth));
        assert!(refused(|h| h.pad = 4));
        assert!(refused(|h| h.opcode = Opcode::RcSendOnly));
        assert!(!refused(|h| h.pad = 0));
        for len in 0..32 {
            assert_eq!(write_headers().emit(&mut out[..len]), None);
        }
        let mut ack = ack_headers();
        ack.pad = 1;
        assert_eq!(ack.emit(&mut out), None);
    }

    /// The peer's QP number, BECN, and sixteen bytes whose content does not matter.
    #[test]
    fn notifications_carry_becn() {
        let mut notification = Headers::new(Opcode::CongestionNotification, 7, Psn::default());
        notification.extension = Extension::Reserved;
        let mut out = [0xaa; 32];
        assert_eq!(notification.emit(&mut out), Some(28));
        assert_eq!(
            out[..12],
            [0x81, 0x40, 0xff, 0xff, 0x40, 0, 0, 7, 0, 0, 0, 0]
        );
        assert_eq!(out[12..28], [0; 16]);
        out[12..28].fill(0x55);
        assert_eq!(Headers::from(&parse(&out, 32).unwrap()), notification);
        assert_eq!(parse(&out, 28), Err(ParseError::TooShort));
        assert_eq!(parse(&out, 36), Err(ParseError::UnexpectedPayload));
    }

    #[test]
    fn padding_fills_words() {
        assert_eq!([0, 1, 2, 3, 4, 4095].map(pad_for), [0, 3, 2, 1, 0, 1]);
        assert_eq!(pad_for(usize::MAX), 1);
    }

    #[test]
    fn immediate_data_and_padding_are_part_of_the_length() {
        assert_eq!(packet_len(Opcode::UdSendOnly, 64), 12 + 8 + 64 + 4);
        assert_eq!(packet_len(Opcode::UdSendOnlyImm, 5), 12 + 8 + 4 + 5 + 3 + 4);
    }

    #[test]
    fn most_headers_of_any_row() {
        assert_eq!(MAX_HEADERS, 40);
    }
}
