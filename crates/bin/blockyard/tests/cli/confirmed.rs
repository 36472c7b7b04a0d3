//! Confirmation at a terminal: the change applies only to the object that was shown in the question.

use crate::lab::{Lab, Outcome};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Runs a command that asks at a terminal; once it asks, runs `meanwhile`, then types `answer`.
fn asked(lab: &Lab, line: &str, answer: &str, meanwhile: impl FnOnce()) -> Outcome {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it is ours");
    let end = || ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other end");
    let child = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(line.split(' '))
        .current_dir(lab.dir.path())
        .env_clear()
        .env("BLOCKYARD_SOCKET", lab.dir.path().join("socket"))
        .stdin(Stdio::from(end()))
        .stderr(Stdio::from(end()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut terminal = File::from(terminal);
    let mut said = String::new();
    let mut take = |until: &str| {
        let mut bytes = [0; 4096];
        while !said.contains(until) {
            // The terminal reports the end of the command as an error.
            let Ok(count @ 1..) = terminal.read(&mut bytes) else { break };
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        std::mem::take(&mut said)
    };
    let question = take("to continue: ");
    assert!(question.contains(" to continue: "), "{line}: {question}");
    meanwhile();
    File::try_clone(&terminal).expect("it is open").write_all(format!("{answer}\n").as_bytes()).expect("it is typed");
    let mut bytes = Vec::new();
    // Reports the same error.
    drop(terminal.read_to_end(&mut bytes));
    let output = child.wait_with_output().expect("it ends");
    Outcome {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8_lossy(&bytes).replace("\r\n", "\n"),
    }
}

#[test]
fn what_has_changed_since_it_was_asked_about_is_kept_and_both_values_are_told() {
    let lab = Lab::new();
    lab.furnish();
    let refused = |outcome: Outcome, both: &[&str]| {
        assert_eq!((outcome.code, outcome.stdout.as_str()), (4, ""), "{}", outcome.stderr);
        for text in ["it has changed since it was read", "(BY-1207)"].iter().chain(both) {
            assert!(outcome.stderr.contains(text), "{text}: {}", outcome.stderr);
        }
    };
    let grown = asked(&lab, "volume delete tank/vm1", "tank/vm1", || {
        lab.good(&["volume", "resize", "tank/vm1", "40MiB"]);
        lab.good(&["volume", "set", "tank/vm1", "--iops", "500"]);
    });
    refused(grown, &["size changed from 33554432 to 41943040", "policy.iops changed from off to 500"]);
    assert!(lab.good(&["volume", "list"]).contains("tank/vm1"));
    // A volume that was recreated under the same name is another volume.
    let other = asked(&lab, "volume delete tank/vm1", "tank/vm1", || {
        lab.good(&["volume", "delete", "tank/vm1", "--yes"]);
        lab.good(&["volume", "create", "tank/vm1", "40MiB"]);
    });
    refused(other, &["id changed from "]);
    lab.good(&["snapshot", "create", "tank/vm1@noon"]);
    let locked = asked(&lab, "snapshot delete tank/vm1@noon", "tank/vm1@noon", || {
        lab.good(&["snapshot", "delete", "tank/vm1@noon", "--yes"]);
        lab.good(&["snapshot", "create", "tank/vm1@noon"]);
    });
    refused(locked, &["id changed from "]);
    lab.good(&["snapshot", "delete", "tank/vm1@noon", "--yes"]);
    lab.good(&["volume", "delete", "tank/vm1", "--yes"]);
    let set = asked(&lab, "pool destroy tank", "tank", || {
        lab.good(&["pool", "set", "tank", "rebuild=fast"]);
    });
    refused(set, &["policy.repair.mode changed from balanced to fast"]);
    let spare = asked(&lab, "disk replace d0 d5 --force", "d0", || {
        lab.good(&["pool", "destroy", "tank", "--yes"]);
        lab.good(&["disk", "spare", "add", "d0"]);
    });
    assert_eq!(spare.code, 4, "{}", spare.stderr);
    assert!(spare.stderr.contains("BY-1207"), "{}", spare.stderr);
}

#[test]
fn what_is_as_it_was_is_done_and_a_wrong_answer_does_nothing() {
    let lab = Lab::new();
    lab.furnish();
    let wrong = asked(&lab, "volume delete tank/vm1", "tank/vm2", || {});
    assert_eq!(wrong.code, 4, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("type its name exactly"), "{}", wrong.stderr);
    let right = asked(&lab, "volume delete tank/vm1", "tank/vm1", || {});
    assert_eq!((right.code, right.stdout.as_str()), (0, "volume tank/vm1 deleted\n"), "{}", right.stderr);
    let right = asked(&lab, "pool destroy tank", "tank", || {});
    assert_eq!(right.code, 0, "{}", right.stderr);
}

#[test]
fn plan_is_applied_to_the_array_that_it_was_shown_for() {
    let lab = Lab::new();
    lab.furnish();
    let document = |iqn: &str| format!("schema = 1\n[host.web]\ninitiators = [\"iqn.2001-04.com.example:{iqn}\"]\n");
    lab.good(&["host", "add", "old", "--initiator", "iqn.2001-04.com.example:old"]);
    fs::write(lab.dir.path().join("array.toml"), document("new")).expect("a file");
    let meanwhile = |name: &str| {
        let add = format!("iqn.2001-04.com.example:{name}");
        lab.good(&["host", "change", "web", "--add-initiator", &add]);
    };
    let applied = asked(&lab, "apply -f array.toml --prune", "apply", || meanwhile("more"));
    assert_eq!(applied.code, 4, "{}", applied.stderr);
    for text in [
        "the array was changed since the preview; you saw ~ host web: iqn.2001-04.com.example:web → \
         iqn.2001-04.com.example:new",
        "; the change would now be ~ host web: iqn.2001-04.com.example:web, iqn.2001-04.com.example:more → \
             iqn.2001-04.com.example:new",
        "; repeat the command to see and confirm the current steps (BY-1851)",
    ] {
        assert!(applied.stderr.contains(text), "{text}: {}", applied.stderr);
    }
    assert!(lab.good(&["host", "list"]).contains("old\t"), "nothing was done");
    let applied = asked(&lab, "apply -f array.toml --prune", "apply", || {});
    assert_eq!(applied.code, 0, "{}", applied.stderr);

    // Back to the configuration with host old, while host web is changed in between.
    let configs = lab.good(&["config", "list", "--no-headers"]);
    let past = configs.lines().find(|line| line.contains("host old")).expect("one with it").split('\t').next();
    let version = past.expect("a number").to_owned();
    let restored = asked(&lab, &format!("config restore {version}"), "apply", || meanwhile("late"));
    assert_eq!(restored.code, 4, "{}", restored.stderr);
    for text in ["the array was changed since the preview; you saw ", "example:late → ", "(BY-1851)"] {
        assert!(restored.stderr.contains(text), "{text}: {}", restored.stderr);
    }
    assert!(!lab.good(&["host", "list"]).contains("old\t"), "nothing was done");
    lab.good(&["config", "restore", &version, "--yes"]);
    assert!(lab.good(&["host", "list"]).contains("old\t"));
}
