//! Identities that survive renaming: they are on the disks, not in anyone's head.

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
            /// A new identity from 16 bytes that nobody can predict (version 4).
            #[must_use]
            pub fn from_random(bytes: [u8; 16]) -> Self {
                Self(Builder::from_random_bytes(bytes).into_uuid())
            }

            /// The identity that these bytes on a disk stand for.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The identity as it stands on a disk.
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
    /// Which disk, wherever it is attached. Given when the disk joins a pool.
    DiskId
);
identity!(
    /// Which pool, whatever it is called.
    PoolId
);
identity!(
    /// Which volume. Hosts see it in the volume's device identification, so it never changes.
    VolumeId
);
identity!(
    /// Which snapshot.
    SnapshotId
);
identity!(
    /// Which node, whatever it is called. Given at its first start.
    NodeId
);
identity!(
    /// Which machine (a hash of its `/etc/machine-id`): the same for every node, state folder and daemon on it.
    MachineId
);
