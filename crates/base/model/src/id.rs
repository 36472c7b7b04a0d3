//! Persistent identities, which survive renaming: stored on disk, and independent of names and device paths.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::{Builder, Uuid};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates an identity from 16 random bytes (UUID version 4). They must be unpredictable.
            #[must_use]
            pub fn from_random(bytes: [u8; 16]) -> Self {
                // Sets the bits of version and variant, so that other tools accept the text as a UUID (RFC 9562 §5.4).
                Self(Builder::from_random_bytes(bytes).into_uuid())
            }

            /// Decodes the on-disk representation.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Encodes the on-disk representation.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    };
}

identity!(
    /// Identity of a disk, independent of its device path. Assigned when the disk joins a pool.
    DiskId
);
identity!(
    /// Identity of a pool, independent of its name.
    PoolId
);
identity!(
    /// Identity of a volume. Part of the device identification that hosts see, so it never changes.
    VolumeId
);
identity!(
    /// Identity of a snapshot.
    SnapshotId
);
identity!(
    /// Identity of a node, independent of its name. Assigned at the first start.
    NodeId
);
identity!(
    /// Identity of a machine (a hash of its `/etc/machine-id`), common to all nodes, state folders and daemons on it.
    MachineId
);
