// SPDX-License-Identifier: GPL-2.0

//! Address handles: paths that datagrams name by number.

use super::memory::region::DomainId;
use super::path::Path;

/// An address handle. It is immutable: each sender copies its path and looks up a route of its own.
pub struct Ah {
    domain: DomainId,
    path: Path,
}

impl Ah {
    /// An address handle for QPs of the protection domain `domain`.
    pub fn new(domain: DomainId, path: Path) -> Self {
        Self { domain, path }
    }

    /// The protection domain whose QPs may use it.
    pub(super) fn domain(&self) -> DomainId {
        self.domain
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
