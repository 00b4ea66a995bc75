// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Requester and responder against each other.

mod errors;
mod hostile;
mod pair;
mod traffic;
