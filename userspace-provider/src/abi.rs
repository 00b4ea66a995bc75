// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The private ABIs of libibverbs that this provider speaks, and where they differ.
//!
//! A private ABI is the agreement between libibverbs and its providers. Of all that a provider
//! touches only three things changed between 34 and 65: the length of `struct verbs_context`, the
//! order of `struct verbs_context_ops`, and the arguments of two functions (`ffi/library.rs`).
//! Source: `libibverbs/driver.h` and `libibverbs/verbs.h` of rdma-core 36 to 65; the layout test
//! compares this file with 56.1 and 65.0, and with what those of the others say
//! (`tests/common/layouts.txt`).

use core::ffi::CStr;

/// A private ABI of libibverbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// rdma-core 36 to 56.
    V34,
    /// rdma-core 57 and 58.
    V57,
    /// rdma-core 59 to 61.
    V59,
    /// rdma-core 62 and 63, whose number is 59, too: they have two operations more.
    V62,
    /// rdma-core 64.
    V64,
    /// rdma-core 65.
    V65,
}

/// The longest operations table among the ABIs, in pointers.
pub const MAX_OPS: usize = 93;

macro_rules! operations {
    ($($op:ident $member:ident $v34:literal $v59:literal $v62:literal $v64:literal $v65:literal;)*)
    => {
        /// The operations of `struct verbs_context_ops` that this provider sets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op {
            $(#[doc = concat!("The member `", stringify!($member), "`.")] $op,)*
        }

        impl Op {
            /// Every operation, by the name of the C member.
            #[cfg(test)]
            pub const ALL: &[(Op, &str)] = &[$((Op::$op, stringify!($member)),)*];

            /// The index in the tables of ABI 34 and 57, 59, 59 from rdma-core 62 on, 64, 65.
            const fn slots(self) -> [usize; 5] {
                match self {
                    $(Op::$op => [$v34, $v59, $v62, $v64, $v65],)*
                }
            }
        }
    };
}

// Operation, C member, and its index in each table as `Op::slots` has them.
operations! {
    AllocMw alloc_mw 2 3 3 4 4;
    AllocNullMr alloc_null_mr 3 4 4 5 5;
    AllocParentDomain alloc_parent_domain 4 5 5 6 6;
    AllocPd alloc_pd 5 6 6 7 7;
    AllocTd alloc_td 6 7 7 8 8;
    AttachMcast attach_mcast 9 10 10 11 11;
    BindMw bind_mw 10 11 11 12 12;
    CreateAh create_ah 13 14 14 15 15;
    CreateCq create_cq 15 16 16 17 18;
    CreateCqEx create_cq_ex 16 17 17 18 19;
    CreateQp create_qp 19 20 20 21 22;
    CreateQpEx create_qp_ex 20 21 21 22 23;
    CreateSrq create_srq 22 23 23 24 25;
    DeallocMw dealloc_mw 25 27 27 28 29;
    DeallocPd dealloc_pd 26 28 28 29 30;
    DeallocTd dealloc_td 27 29 29 30 31;
    DeregMr dereg_mr 28 30 30 31 32;
    DestroyAh destroy_ah 29 31 31 32 33;
    DestroyCq destroy_cq 31 33 33 34 36;
    DestroyQp destroy_qp 34 36 36 37 39;
    DestroySrq destroy_srq 36 38 38 39 41;
    DetachMcast detach_mcast 38 40 40 41 43;
    FreeContext free_context 39 41 42 44 46;
    ImportMr import_mr 43 45 46 48 50;
    ImportPd import_pd 44 46 47 49 51;
    ModifyCq modify_cq 45 47 48 50 54;
    ModifyQp modify_qp 47 49 50 52 56;
    ModifySrq modify_srq 49 51 52 54 58;
    PollCq poll_cq 53 55 56 58 62;
    PostRecv post_recv 54 56 57 59 63;
    PostSend post_send 55 57 58 60 64;
    PostSrqRecv post_srq_recv 57 59 60 62 66;
    QueryDeviceEx query_device_ex 58 60 61 63 69;
    QueryPort query_port 60 62 63 65 71;
    QueryQp query_qp 61 63 65 67 73;
    QueryRtValues query_rt_values 63 65 67 69 75;
    QuerySrq query_srq 64 66 68 70 76;
    RegMr reg_mr 68 70 72 74 82;
    ReqNotifyCq req_notify_cq 69 72 74 76 84;
    ReregMr rereg_mr 70 73 75 77 85;
    ResizeCq resize_cq 71 74 76 78 86;
    UnimportMr unimport_mr 74 77 79 81 91;
    UnimportPd unimport_pd 75 78 80 82 92;
}

impl Abi {
    /// Every ABI, newest first: of those with one number the one with more functions.
    pub const ALL: [Abi; 6] = [Abi::V65, Abi::V64, Abi::V62, Abi::V59, Abi::V57, Abi::V34];

    /// The number in `verbs_register_driver_<number>`.
    pub const fn number(self) -> u32 {
        match self {
            Abi::V34 => 34,
            Abi::V57 => 57,
            Abi::V59 | Abi::V62 => 59,
            Abi::V64 => 64,
            Abi::V65 => 65,
        }
    }

    /// The function that registers a provider.
    pub const fn register_name(self) -> &'static CStr {
        match self {
            Abi::V34 => c"verbs_register_driver_34",
            Abi::V57 => c"verbs_register_driver_57",
            Abi::V59 | Abi::V62 => c"verbs_register_driver_59",
            Abi::V64 => c"verbs_register_driver_64",
            Abi::V65 => c"verbs_register_driver_65",
        }
    }

    /// The symbol version of the private functions.
    pub const fn private_version(self) -> &'static CStr {
        match self {
            Abi::V34 => c"IBVERBS_PRIVATE_34",
            Abi::V57 => c"IBVERBS_PRIVATE_57",
            Abi::V59 | Abi::V62 => c"IBVERBS_PRIVATE_59",
            Abi::V64 => c"IBVERBS_PRIVATE_64",
            Abi::V65 => c"IBVERBS_PRIVATE_65",
        }
    }

    /// A private function that tells it from another ABI of its number, an older one.
    pub const fn mark(self) -> Option<&'static CStr> {
        match self {
            Abi::V62 => Some(c"ibv_cmd_query_port_speed"),
            _ => None,
        }
    }

    /// Whether `ibv_cmd_get_context` takes file descriptors.
    pub const fn has_fds(self) -> bool {
        !matches!(self, Abi::V34)
    }

    /// Whether `ibv_cmd_create_cq_ex` takes attributes of the provider.
    pub const fn has_provider_attr(self) -> bool {
        !matches!(self, Abi::V34 | Abi::V57)
    }

    /// Offset of `struct ibv_context` in `struct verbs_context`, whose last member it is.
    pub const fn context_offset(self) -> usize {
        match self {
            Abi::V34 | Abi::V57 => 320,
            Abi::V59 => 344,
            Abi::V62 => 352,
            Abi::V64 | Abi::V65 => 368,
        }
    }

    /// Pointers in `struct verbs_context_ops`.
    #[cfg(test)]
    pub const fn ops(self) -> usize {
        match self {
            Abi::V34 | Abi::V57 => 76,
            Abi::V59 => 79,
            Abi::V62 => 81,
            Abi::V64 => 83,
            Abi::V65 => MAX_OPS,
        }
    }

    /// Index of an operation in `struct verbs_context_ops`.
    pub const fn slot(self, op: Op) -> usize {
        let [v34, v59, v62, v64, v65] = op.slots();
        match self {
            Abi::V34 | Abi::V57 => v34,
            Abi::V59 => v59,
            Abi::V62 => v62,
            Abi::V64 => v64,
            Abi::V65 => v65,
        }
    }
}
