// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The private ABIs of libibverbs that this provider speaks, and where they differ.
//!
//! A private ABI is the agreement between libibverbs and its providers. Of all that a provider
//! touches only three things changed between 34 and 65: the length of `struct verbs_context`, the
//! order of `struct verbs_context_ops`, and the arguments of two functions (`ffi/library.rs`).
//! Source: `libibverbs/driver.h` and `libibverbs/verbs.h` of rdma-core 56.1 and 65.0; the layout
//! test compares this file with them.

/// A private ABI of libibverbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// rdma-core 36 to 56.
    V34,
    /// rdma-core 65.
    V65,
}

/// The longest operations table among the ABIs, in pointers.
pub const MAX_OPS: usize = 93;

macro_rules! operations {
    ($($op:ident $member:ident $v34:literal $v65:literal;)*) => {
        /// The operations of `struct verbs_context_ops` that this provider sets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op {
            $(#[doc = concat!("The member `", stringify!($member), "`.")] $op,)*
        }

        impl Op {
            /// Every operation, by the name of the C member.
            #[cfg(test)]
            pub const ALL: &[(Op, &str)] = &[$((Op::$op, stringify!($member)),)*];

            /// The index in the table of each ABI: 34, 65.
            const fn slots(self) -> (usize, usize) {
                match self {
                    $(Op::$op => ($v34, $v65),)*
                }
            }
        }
    };
}

// Operation, C member, index in ABI 34, index in ABI 65.
operations! {
    AllocMw alloc_mw 2 4;
    AllocNullMr alloc_null_mr 3 5;
    AllocParentDomain alloc_parent_domain 4 6;
    AllocPd alloc_pd 5 7;
    AllocTd alloc_td 6 8;
    AttachMcast attach_mcast 9 11;
    BindMw bind_mw 10 12;
    CreateAh create_ah 13 15;
    CreateCq create_cq 15 18;
    CreateCqEx create_cq_ex 16 19;
    CreateQp create_qp 19 22;
    CreateQpEx create_qp_ex 20 23;
    CreateSrq create_srq 22 25;
    DeallocMw dealloc_mw 25 29;
    DeallocPd dealloc_pd 26 30;
    DeallocTd dealloc_td 27 31;
    DeregMr dereg_mr 28 32;
    DestroyAh destroy_ah 29 33;
    DestroyCq destroy_cq 31 36;
    DestroyQp destroy_qp 34 39;
    DestroySrq destroy_srq 36 41;
    DetachMcast detach_mcast 38 43;
    FreeContext free_context 39 46;
    ImportMr import_mr 43 50;
    ImportPd import_pd 44 51;
    ModifyCq modify_cq 45 54;
    ModifyQp modify_qp 47 56;
    ModifySrq modify_srq 49 58;
    PollCq poll_cq 53 62;
    PostRecv post_recv 54 63;
    PostSend post_send 55 64;
    PostSrqRecv post_srq_recv 57 66;
    QueryDeviceEx query_device_ex 58 69;
    QueryPort query_port 60 71;
    QueryQp query_qp 61 73;
    QueryRtValues query_rt_values 63 75;
    QuerySrq query_srq 64 76;
    RegMr reg_mr 68 82;
    ReqNotifyCq req_notify_cq 69 84;
    ReregMr rereg_mr 70 85;
    ResizeCq resize_cq 71 86;
    UnimportMr unimport_mr 74 91;
    UnimportPd unimport_pd 75 92;
}

impl Abi {
    /// Every ABI, newest first.
    pub const ALL: [Abi; 2] = [Abi::V65, Abi::V34];

    /// The number in `verbs_register_driver_<number>`.
    pub const fn number(self) -> u32 {
        match self {
            Abi::V34 => 34,
            Abi::V65 => 65,
        }
    }

    /// Offset of `struct ibv_context` in `struct verbs_context`, whose last member it is.
    pub const fn context_offset(self) -> usize {
        match self {
            Abi::V34 => 320,
            Abi::V65 => 368,
        }
    }

    /// Pointers in `struct verbs_context_ops`.
    #[cfg(test)]
    pub const fn ops(self) -> usize {
        match self {
            Abi::V34 => 76,
            Abi::V65 => 93,
        }
    }

    /// Index of an operation in `struct verbs_context_ops`.
    pub const fn slot(self, op: Op) -> usize {
        let (v34, v65) = op.slots();
        match self {
            Abi::V34 => v34,
            Abi::V65 => v65,
        }
    }
}
