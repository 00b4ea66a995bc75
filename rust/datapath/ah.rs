// SPDX-License-Identifier: GPL-2.0

//! Address handles: ways that datagrams name by number.

use super::memory::region::DomainId;
use super::path::Path;

/// An address handle. It does not change: whoever sends along it has a copy of the way, with a
/// route of its own to look up anew.
pub struct Ah {
    domain: DomainId,
    path: Path,
}

impl Ah {
    /// A handle for QPs of `domain`.
    pub fn new(domain: DomainId, path: Path) -> Self {
        Self { domain, path }
    }

    /// Whose QPs may use it.
    pub(super) fn domain(&self) -> DomainId {
        self.domain
    }

    /// Where it leads.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
