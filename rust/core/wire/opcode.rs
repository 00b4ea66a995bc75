// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The opcodes: the one table of what a packet of each kind carries.
//!
//! IBTA 9.2 (table "OpCode field"): the upper three bits name the transport service, the lower
//! five the operation and the packet's place in its message. Another service or operation is
//! another row of the table below; the parser, the emitter and the transport read the row and
//! match on opcodes nowhere else.

/// Transport service of an opcode: its upper three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpcodeService {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// None of these: notifications for the QP of a connection, reliable or not (annex A17).
    Cnp = 0x80,
}

impl OpcodeService {
    /// The bits of an opcode's number that name the service.
    pub const MASK: u8 = 0xe0;
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a SEND message.
    Send,
    /// A piece of an RDMA WRITE message.
    Write,
    /// An RDMA READ request: a whole message, without payload.
    ReadRequest,
    /// An atomic operation on 8 bytes of remote memory: a whole message, without payload.
    Atomic(AtomicKind),
    /// An ATOMIC WRITE: 8 bytes, a whole message.
    AtomicWrite,
    /// A FLUSH: a whole message, without payload.
    Flush,
    /// A piece of the data of an RDMA READ; empty, the response to an ATOMIC WRITE or a FLUSH.
    ReadResponse,
    /// The response to an atomic operation: the original value.
    AtomicAcknowledge,
    /// ACK, RNR NAK or NAK, as the AETH says.
    Acknowledge,
    /// Which packets are missing and which are kept behind them, as a bitmap. Only to a peer that
    /// understands it.
    Missing,
    /// The network has marked packets that the QP sent.
    Notification,
    /// A request of the service that is not served: it is refused, not lost (IBTA 9.7.4.1.4).
    Unsupported,
}

/// The kind of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Writes a value if the present one is the one to compare with.
    CompareSwap,
    /// Adds a value.
    FetchAdd,
}

impl Kind {
    /// Whether the packet goes from requester to responder.
    #[inline]
    pub const fn is_request(self) -> bool {
        !matches!(
            self,
            Kind::ReadResponse
                | Kind::AtomicAcknowledge
                | Kind::Acknowledge
                | Kind::Missing
                | Kind::Notification
        )
    }
}

/// Whether packets with an opcode have payload. How much depends on the path MTU and the place in
/// the message, which `core::message` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// None.
    Empty,
    /// Up to [`super::MAX_PAYLOAD`] bytes.
    Any,
    /// The bytes behind the BTH are not parsed.
    Opaque,
}

/// Extended headers behind the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionKind {
    /// None.
    None,
    /// Immediate data.
    Imm,
    /// A RETH.
    Reth,
    /// A RETH, then immediate data.
    RethImm,
    /// An AETH.
    Aeth,
    /// A DETH.
    Deth,
    /// A DETH, then immediate data.
    DethImm,
    /// An IETH.
    Ieth,
    /// An AtomicETH.
    Atomic,
    /// An AETH, then an AtomicAckETH.
    AtomicAck,
    /// A FETH, then a RETH.
    Flush,
    /// 16 bytes that are sent as 0 and not looked at.
    Reserved,
}

/// The lengths again, so that finding one is a load, as for the rows of opcodes.
static LENGTHS: [u8; 12] = [
    ExtensionKind::None.length(),
    ExtensionKind::Imm.length(),
    ExtensionKind::Reth.length(),
    ExtensionKind::RethImm.length(),
    ExtensionKind::Aeth.length(),
    ExtensionKind::Deth.length(),
    ExtensionKind::DethImm.length(),
    ExtensionKind::Ieth.length(),
    ExtensionKind::Atomic.length(),
    ExtensionKind::AtomicAck.length(),
    ExtensionKind::Flush.length(),
    ExtensionKind::Reserved.length(),
];

impl ExtensionKind {
    /// In bytes.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there is a length for each")]
    pub const fn bytes(self) -> usize {
        LENGTHS[self as usize] as usize
    }

    /// Like [`Self::bytes`], by a chain of comparisons.
    const fn length(self) -> u8 {
        match self {
            ExtensionKind::None => 0,
            ExtensionKind::Imm | ExtensionKind::Aeth | ExtensionKind::Ieth => 4,
            ExtensionKind::Deth => 8,
            ExtensionKind::DethImm => 12,
            ExtensionKind::Reth | ExtensionKind::Reserved => 16,
            ExtensionKind::RethImm | ExtensionKind::Flush => 20,
            ExtensionKind::Atomic => 28,
            ExtensionKind::AtomicAck => 12,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// Transport service.
    pub service: OpcodeService,
    /// The kind of the packet.
    pub kind: Kind,
    /// First packet of a message.
    pub first: bool,
    /// Last packet of a message.
    pub last: bool,
    /// The extended header behind the BTH.
    pub extension: ExtensionKind,
    /// Permitted payload.
    pub payload: PayloadRule,
}

impl OpcodeInfo {
    /// Whether the packet may carry payload at all.
    #[inline]
    pub const fn has_payload(&self) -> bool {
        !matches!(self.payload, PayloadRule::Empty)
    }

    /// Bytes of the BTH and the extended headers together.
    #[inline]
    pub const fn headers_len(&self) -> usize {
        // The sum of two small constants: it cannot wrap.
        12usize.wrapping_add(self.extension.bytes())
    }
}

/// Whether the name in the column "place" of a row is a first or a last packet.
macro_rules! is_at {
    (first, First) => {
        true
    };
    (first, Only) => {
        true
    };
    (last, Last) => {
        true
    };
    (last, Only) => {
        true
    };
    ($what:ident, $name:ident) => {
        false
    };
}

/// Makes the enum of the opcodes, its numbers and its rows from the table.
macro_rules! opcodes {
    ($(
        $(#[doc = $doc:literal])*
        $code:literal $name:ident:
            $service:ident $kind:ident $(($atomic:ident))?
            $place:ident $headers:ident $payload:ident;
    )*) => {
        /// An opcode that this implementation knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl Opcode {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The opcode with this number, or `None` if it is reserved or not served here.
            #[inline]
            #[expect(clippy::indexing_slicing, reason = "a byte is within 256 numbers")]
            pub const fn from_u8(number: u8) -> Option<Self> {
                NUMBERS[number as usize]
            }

            /// Like [`Self::from_u8`], by a chain of comparisons.
            const fn numbered(number: u8) -> Option<Self> {
                match number {
                    $($code => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[inline]
            pub const fn as_u8(self) -> u8 {
                self as u8
            }

            /// The row of the table, as a chain of comparisons.
            const fn row(self) -> OpcodeInfo {
                match self {
                    $(Opcode::$name => OpcodeInfo {
                        service: OpcodeService::$service,
                        kind: Kind::$kind $((AtomicKind::$atomic))?,
                        first: is_at!(first, $place),
                        last: is_at!(last, $place),
                        extension: ExtensionKind::$headers,
                        payload: PayloadRule::$payload,
                    },)*
                }
            }
        }
    };
}

/// The rows again, one for each value of a byte, so that finding one is a load of eight bytes.
///
/// The kernel is built without jump tables; a `match` would be a search for each packet.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a bad index is an error of the build"
)]
static ROWS: [OpcodeInfo; 256] = {
    // Rows without an opcode are never read.
    let mut rows = [Opcode::RcSendFirst.row(); 256];
    let mut rest = Opcode::ALL;
    while let [opcode, tail @ ..] = rest {
        rows[opcode.as_u8() as usize] = opcode.row();
        rest = tail;
    }
    rows
};

/// The opcode of each number, likewise.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a bad index is an error of the build"
)]
static NUMBERS: [Option<Opcode>; 256] = {
    let mut numbers = [None; 256];
    let mut number = 0u8;
    while number < u8::MAX {
        numbers[number as usize] = Opcode::numbered(number);
        number += 1;
    }
    numbers
};

impl Opcode {
    /// The row of the table.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a byte is within 256 rows")]
    pub const fn info(self) -> OpcodeInfo {
        ROWS[self.as_u8() as usize]
    }
}

opcodes! {
    // number, name: service, kind, place in the message, headers behind the BTH, payload

    /// RC SEND First.
    0x00 RcSendFirst: Rc Send First None Any;
    /// RC SEND Middle.
    0x01 RcSendMiddle: Rc Send Middle None Any;
    /// RC SEND Last.
    0x02 RcSendLast: Rc Send Last None Any;
    /// RC SEND Last with Immediate.
    0x03 RcSendLastImm: Rc Send Last Imm Any;
    /// RC SEND Only.
    0x04 RcSendOnly: Rc Send Only None Any;
    /// RC SEND Only with Immediate.
    0x05 RcSendOnlyImm: Rc Send Only Imm Any;
    /// RC RDMA WRITE First.
    0x06 RcWriteFirst: Rc Write First Reth Any;
    /// RC RDMA WRITE Middle.
    0x07 RcWriteMiddle: Rc Write Middle None Any;
    /// RC RDMA WRITE Last.
    0x08 RcWriteLast: Rc Write Last None Any;
    /// RC RDMA WRITE Last with Immediate.
    0x09 RcWriteLastImm: Rc Write Last Imm Any;
    /// RC RDMA WRITE Only.
    0x0a RcWriteOnly: Rc Write Only Reth Any;
    /// RC RDMA WRITE Only with Immediate.
    0x0b RcWriteOnlyImm: Rc Write Only RethImm Any;
    /// RC RDMA READ Request.
    0x0c RcReadRequest: Rc ReadRequest Only Reth Empty;
    /// RC RDMA READ response First.
    0x0d RcReadResponseFirst: Rc ReadResponse First Aeth Any;
    /// RC RDMA READ response Middle.
    0x0e RcReadResponseMiddle: Rc ReadResponse Middle None Any;
    /// RC RDMA READ response Last.
    0x0f RcReadResponseLast: Rc ReadResponse Last Aeth Any;
    /// RC RDMA READ response Only.
    0x10 RcReadResponseOnly: Rc ReadResponse Only Aeth Any;
    /// RC Acknowledge.
    0x11 RcAcknowledge: Rc Acknowledge Only Aeth Empty;
    /// RC Atomic Acknowledge.
    0x12 RcAtomicAcknowledge: Rc AtomicAcknowledge Only AtomicAck Empty;
    /// RC Compare & Swap.
    0x13 RcCompareSwap: Rc Atomic(CompareSwap) Only Atomic Empty;
    /// RC Fetch & Add.
    0x14 RcFetchAdd: Rc Atomic(FetchAdd) Only Atomic Empty;

    // Most of the rest are requests of RC that are not served.

    /// Reserved.
    0x15 RcReserved15: Rc Unsupported Only None Opaque;
    /// RC SEND Last with Invalidate.
    0x16 RcSendLastInvalidate: Rc Send Last Ieth Any;
    /// RC SEND Only with Invalidate.
    0x17 RcSendOnlyInvalidate: Rc Send Only Ieth Any;
    /// Reserved.
    0x18 RcReserved18: Rc Unsupported Only None Opaque;
    /// Reserved.
    0x19 RcReserved19: Rc Unsupported Only None Opaque;
    /// Reserved.
    0x1a RcReserved1a: Rc Unsupported Only None Opaque;
    /// Reserved.
    0x1b RcReserved1b: Rc Unsupported Only None Opaque;
    /// RC FLUSH.
    0x1c RcFlush: Rc Flush Only Flush Empty;
    /// RC ATOMIC WRITE.
    0x1d RcAtomicWrite: Rc AtomicWrite Only Reth Any;
    /// Reserved.
    0x1e RcReserved1e: Rc Unsupported Only None Opaque;
    /// Reserved.
    0x1f RcReserved1f: Rc Unsupported Only None Opaque;

    /// UC SEND First.
    0x20 UcSendFirst: Uc Send First None Any;
    /// UC SEND Middle.
    0x21 UcSendMiddle: Uc Send Middle None Any;
    /// UC SEND Last.
    0x22 UcSendLast: Uc Send Last None Any;
    /// UC SEND Last with Immediate.
    0x23 UcSendLastImm: Uc Send Last Imm Any;
    /// UC SEND Only.
    0x24 UcSendOnly: Uc Send Only None Any;
    /// UC SEND Only with Immediate.
    0x25 UcSendOnlyImm: Uc Send Only Imm Any;
    /// UC RDMA WRITE First.
    0x26 UcWriteFirst: Uc Write First Reth Any;
    /// UC RDMA WRITE Middle.
    0x27 UcWriteMiddle: Uc Write Middle None Any;
    /// UC RDMA WRITE Last.
    0x28 UcWriteLast: Uc Write Last None Any;
    /// UC RDMA WRITE Last with Immediate.
    0x29 UcWriteLastImm: Uc Write Last Imm Any;
    /// UC RDMA WRITE Only.
    0x2a UcWriteOnly: Uc Write Only Reth Any;
    /// UC RDMA WRITE Only with Immediate.
    0x2b UcWriteOnlyImm: Uc Write Only RethImm Any;

    /// UD SEND Only.
    0x64 UdSendOnly: Ud Send Only Deth Any;
    /// UD SEND Only with Immediate.
    0x65 UdSendOnlyImm: Ud Send Only DethImm Any;

    /// Congestion Notification Packet.
    0x81 CongestionNotification: Cnp Notification Only Reserved Empty;

    // The numbers from 0xc0 on are the manufacturer's.

    /// RC Missing.
    0xc0 RcMissing: Rc Missing Only Aeth Any;
}

impl Opcode {
    /// The packet of the same kind of another service, if there is one.
    #[inline]
    pub const fn of_service(self, service: OpcodeService) -> Option<Self> {
        Self::from_u8(self.as_u8() & !OpcodeService::MASK | service as u8)
    }

    /// Whether the packet has immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(
            self.info().extension,
            ExtensionKind::Imm | ExtensionKind::RethImm | ExtensionKind::DethImm
        )
    }

    /// The RC SEND packet with this place in its message.
    ///
    /// Immediate data travels in the last packet: `imm` says whether the message has some, and
    /// counts only together with `last`.
    #[inline]
    pub const fn for_send(first: bool, last: bool, imm: bool) -> Self {
        match (first, last, imm) {
            (true, false, _) => Opcode::RcSendFirst,
            (false, false, _) => Opcode::RcSendMiddle,
            (false, true, false) => Opcode::RcSendLast,
            (false, true, true) => Opcode::RcSendLastImm,
            (true, true, false) => Opcode::RcSendOnly,
            (true, true, true) => Opcode::RcSendOnlyImm,
        }
    }

    /// The RC SEND packet with this place in its message, the last of which invalidates a key.
    #[inline]
    pub const fn for_send_invalidate(first: bool, last: bool) -> Self {
        match (first, last) {
            (_, false) => Self::for_send(first, false, false),
            (false, true) => Opcode::RcSendLastInvalidate,
            (true, true) => Opcode::RcSendOnlyInvalidate,
        }
    }

    /// The RC RDMA WRITE packet with this place in its message; `imm` as in [`Self::for_send`].
    #[inline]
    pub const fn for_write(first: bool, last: bool, imm: bool) -> Self {
        match (first, last, imm) {
            (true, false, _) => Opcode::RcWriteFirst,
            (false, false, _) => Opcode::RcWriteMiddle,
            (false, true, false) => Opcode::RcWriteLast,
            (false, true, true) => Opcode::RcWriteLastImm,
            (true, true, false) => Opcode::RcWriteOnly,
            (true, true, true) => Opcode::RcWriteOnlyImm,
        }
    }

    /// The RC RDMA READ response packet with this place in its message.
    #[inline]
    pub const fn for_read_response(first: bool, last: bool) -> Self {
        match (first, last) {
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
            (true, true) => Opcode::RcReadResponseOnly,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_opcode))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_service_and_dense() {
        let known = (0u8..0x2c).chain([0x64, 0x65, 0x81, 0xc0]);
        assert_eq!(known.clone().count(), Opcode::ALL.len());
        for (number, opcode) in known.zip(Opcode::ALL) {
            assert_eq!(opcode.as_u8(), number);
            if *opcode != Opcode::RcMissing {
                assert_eq!(opcode.as_u8() & 0xe0, opcode.info().service as u8);
            }
        }
    }

    /// The packets of UC and UD are those of RC with the same lower bits.
    #[test]
    fn services_agree_about_the_lower_five_bits() {
        let alone = [Opcode::CongestionNotification, Opcode::RcMissing];
        for opcode in Opcode::ALL.iter().filter(|it| !alone.contains(it)) {
            let info = opcode.info();
            assert_eq!(opcode.of_service(info.service), Some(*opcode));
            let rc = opcode.of_service(OpcodeService::Rc);
            assert!(rc.is_some());
            let rc = rc.unwrap_or(*opcode);
            let same = rc.info();
            assert_eq!(
                (same.kind, same.first, same.last),
                (info.kind, info.first, info.last)
            );
            let has_uc = rc.of_service(OpcodeService::Uc).is_some();
            let connected = matches!(same.kind, Kind::Send | Kind::Write);
            // What invalidates a key is answered.
            let invalidates = same.extension == ExtensionKind::Ieth;
            assert_eq!(has_uc, connected && !invalidates);
            let has_ud = rc.of_service(OpcodeService::Ud).is_some();
            assert_eq!(has_ud, matches!(rc.as_u8(), 4 | 5));
        }
    }

    #[test]
    fn from_u8_is_the_inverse_of_as_u8() {
        for number in 0..=u8::MAX {
            match Opcode::from_u8(number) {
                Some(opcode) => assert_eq!(opcode.as_u8(), number),
                None => assert!(number > 0x2b && !matches!(number, 0x64 | 0x65 | 0x81 | 0xc0)),
            }
        }
    }

    /// The constructor of a kind agrees with the rows: it finds the only one with these properties.
    #[test]
    fn constructors_agree_with_the_table() {
        for opcode in Opcode::ALL.iter().copied() {
            let OpcodeInfo {
                service,
                kind,
                first,
                last,
                extension,
                ..
            } = opcode.info();
            let has_imm = matches!(
                extension,
                ExtensionKind::Imm | ExtensionKind::RethImm | ExtensionKind::DethImm
            );
            let of_service = |opcode: Opcode| opcode.of_service(service);
            match kind {
                Kind::Send if extension == ExtensionKind::Ieth => {
                    assert_eq!(Opcode::for_send_invalidate(first, last), opcode);
                }
                Kind::Send => {
                    let found = Opcode::for_send(first, last, has_imm);
                    assert_eq!(of_service(found), Some(opcode));
                }
                Kind::Write => {
                    let found = Opcode::for_write(first, last, has_imm);
                    assert_eq!(of_service(found), Some(opcode));
                }
                Kind::ReadResponse => assert_eq!(Opcode::for_read_response(first, last), opcode),
                _ => assert!(first && last),
            }
        }
        // Keys and immediate data wait for the last packet.
        for first in [false, true] {
            assert_eq!(
                Opcode::for_send_invalidate(first, false),
                Opcode::for_send(first, false, false)
            );
        }
        assert_eq!(
            Opcode::for_send(true, false, true),
            Opcode::for_send(true, false, false)
        );
        assert_eq!(
            Opcode::for_write(false, false, true),
            Opcode::for_write(false, false, false)
        );
    }

    #[test]
    fn headers_follow_the_kind_and_the_place() {
        for opcode in Opcode::ALL {
            let info = opcode.info();
            let extension = match (info.kind, info.first, info.last) {
                (Kind::ReadRequest, _, _) => ExtensionKind::Reth,
                (Kind::Write, true, true) if matches!(opcode.as_u8() & 0x1f, 0x0b) => {
                    ExtensionKind::RethImm
                }
                (Kind::Write, true, _) => ExtensionKind::Reth,
                (Kind::ReadResponse, false, false) => ExtensionKind::None,
                (Kind::ReadResponse | Kind::Acknowledge | Kind::Missing, _, _) => {
                    ExtensionKind::Aeth
                }
                _ if info.service == OpcodeService::Ud && opcode.as_u8() & 1 == 1 => {
                    ExtensionKind::DethImm
                }
                _ if info.service == OpcodeService::Ud => ExtensionKind::Deth,
                (Kind::Atomic(_), _, _) => ExtensionKind::Atomic,
                (Kind::AtomicAcknowledge, _, _) => ExtensionKind::AtomicAck,
                (Kind::AtomicWrite, _, _) => ExtensionKind::Reth,
                (Kind::Flush, _, _) => ExtensionKind::Flush,
                (Kind::Notification, _, _) => ExtensionKind::Reserved,
                _ if matches!(info.extension, ExtensionKind::Imm) => {
                    assert!(info.last);
                    ExtensionKind::Imm
                }
                (Kind::Send, _, true) if info.extension == ExtensionKind::Ieth => {
                    ExtensionKind::Ieth
                }
                _ => ExtensionKind::None,
            };
            assert_eq!(info.extension, extension);
            let payload = match (info.kind, info.first, info.last) {
                (Kind::ReadRequest | Kind::Acknowledge | Kind::Notification, _, _) => {
                    PayloadRule::Empty
                }
                (Kind::Atomic(_) | Kind::AtomicAcknowledge | Kind::Flush, _, _) => {
                    PayloadRule::Empty
                }
                (Kind::Unsupported, _, _) => PayloadRule::Opaque,
                _ => PayloadRule::Any,
            };
            assert_eq!(info.payload, payload);
        }
        assert_eq!(Opcode::RcWriteOnlyImm.info().headers_len(), 32);
        assert_eq!(Opcode::RcReadResponseMiddle.info().headers_len(), 12);
        assert_eq!(Opcode::RcAcknowledge.info().headers_len(), 16);
        assert_eq!(Opcode::CongestionNotification.info().headers_len(), 28);
        assert_eq!(Opcode::UdSendOnly.info().headers_len(), 20);
        assert_eq!(Opcode::UdSendOnlyImm.info().headers_len(), 24);
        assert_eq!(Opcode::RcFetchAdd.info().headers_len(), 40);
        assert_eq!(Opcode::RcAtomicAcknowledge.info().headers_len(), 24);
    }

    #[test]
    fn info_is_the_row() {
        for opcode in Opcode::ALL {
            assert_eq!(opcode.info(), opcode.row());
        }
    }
}
