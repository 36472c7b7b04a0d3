//! User of the confined daemon, as set by `user` in the configuration. The helper gives it the state folder, and the
//! daemon changes to it.

use model::{Refusal, code};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::Path;

/// Limit of `/etc/passwd` in bytes: one line of at most some hundred bytes per user.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// User of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Name as in the configuration.
    pub name: String,
    uid: u32,
    gid: u32,
}

impl User {
    /// Looks the user up in `/etc/passwd`.
    ///
    /// *Errors*: there is no such user.
    pub(crate) fn find(name: &str) -> Result<Self, Refusal> {
        let passwd = bounded::text_file(Path::new("/etc/passwd"), PASSWD_BYTES_MAX).unwrap_or_default();
        Self::among(&passwd, name).ok_or_else(|| {
            let message = format!("/etc/passwd has no user {}", bounded::quoted(name));
            Refusal::new(code::CONFIG_INVALID, message, "create the user, or correct user in the configuration")
        })
    }

    fn among(passwd: &str, name: &str) -> Option<Self> {
        let mut fields = passwd
            .lines()
            .map(|line| line.split(':'))
            .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { name: name.to_owned(), uid, gid })
    }

    /// Changes this process, which has one thread, to the user, without supplementary groups.
    pub(crate) fn take(&self) -> io::Result<()> {
        // Also for an ordinary user, who could not change groups.
        if geteuid().as_raw() == self.uid {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // Groups first, user last: after the user has changed, the process may no longer change its groups.
        set_thread_groups(&[])?;
        // The saved IDs, too: with a saved ID of root the process could become root again.
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    }
}

/// Gives the state folder with its content, the key and the folder of the socket to the user. Called only as root;
/// symbolic links are not followed.
///
/// *Errors*: a file cannot be given away.
pub(crate) fn prepare(user: &User, state: &Path, key: Option<&Path>, socket: &Path) -> io::Result<()> {
    let own = |path: &Path| lchown(path, Some(user.uid), Some(user.gid));
    if geteuid().as_raw() == user.uid {
        return Ok(());
    }
    // Here, because the user of the daemon may not be allowed to create a folder below `/var/lib`.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let mut folders = vec![state.to_path_buf()];
    while let Some(folder) = folders.pop() {
        own(&folder)?;
        for entry in fs::read_dir(&folder)? {
            // The type of the entry itself: a link to a folder changes its owner and is not followed.
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => own(&entry.path())?,
            }
        }
    }
    if let Some(key) = key.filter(|key| key.exists()) {
        own(key)?;
    }
    // An existing folder of the socket, such as `/run`, keeps its owner.
    match socket.parent().filter(|folder| !folder.exists()) {
        Some(folder) => fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).and_then(|()| own(folder)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nblock:x:7:8::/:/bin/false\nblockyard:x:100:101::/var:/bin/false\nodd:x:y\n";
        let user = |name: &str| User::among(passwd, name).map(|user| (user.uid, user.gid));
        assert_eq!(user("blockyard"), Some((100, 101)));
        assert_eq!((user("root"), user("block")), (Some((0, 0)), Some((7, 8))));
        assert_eq!((user("yard"), user("odd"), user("")), (None, None, None));
    }
}
