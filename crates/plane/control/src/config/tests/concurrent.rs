//! Tests of documents beside which others change the array.

use super::apply;
use crate::config::{ApplyConfig, Document, ExternalPlan, ExternalSections, ProvisionalChange, RestoreConfig};
use crate::request::{NewBackend, NewVolume, Removal, Unpresent};
use crate::state::{CredentialsRecord, HostRecord};
use crate::tests::{Array, new_host, new_presentation, new_volume};
use crate::{Control, Core};
use model::{Name, Refusal, Size, code};
use std::sync::Arc;
use std::time::Duration;

/// Time in which a call that is not held up gets as far as the change lock.
const UNTIL_LOCKED: Duration = Duration::from_millis(500);

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A document with the host `db`.
fn of_db() -> Document {
    let text = r#"{"schema": 1, "host": {"db": {"initiators": ["iqn.2001-04.com.example:db"]}}}"#;
    serde_json::from_str(text).expect("a document")
}

/// Sections outside the state; another operator adds the host `late` while they are asked.
struct ConcurrentCreation {
    core: Arc<Core>,
    adds_at_plan: bool,
}

impl ConcurrentCreation {
    fn add_late(&self) {
        let turn = self.core.try_lock_changes().expect("no change is in progress");
        let late = HostRecord {
            any: false,
            initiators: vec!["iqn.2001-04.com.example:late".parse().expect("an iSCSI name")],
            networks: Vec::new(),
            proof: CredentialsRecord::default(),
        };
        let add = self.core.commit(&turn, |state| {
            state.hosts.insert(name("late"), late);
        });
        add.expect("committed");
    }
}

impl ExternalSections for ConcurrentCreation {
    fn export(&self, _: &mut Document) {}

    fn plan(&self, _: &Document, _: bool) -> Result<ExternalPlan, Refusal> {
        if self.adds_at_plan {
            self.add_late();
        }
        Ok(ExternalPlan::default())
    }

    fn commit(&self, _: &Document, _: bool) -> Result<Box<dyn ProvisionalChange>, Refusal> {
        self.add_late();
        Err(Refusal::new(code::LAST_ADMIN, "users are refused", "do this"))
    }
}

fn has(control: &Control, host: &str) -> bool {
    control.core.state().hosts.contains_key(&name(host))
}

/// Regression: the rules of before the document were restored, also where it had not changed them yet.
#[tokio::test]
async fn document_that_is_refused_before_its_access_rules_leaves_those_of_others() {
    let array = Array::new().await;
    let beside = ConcurrentCreation { core: array.control.core.clone(), adds_at_plan: false };
    let refusal = array.control.config.apply(apply(&of_db()), &beside).await.expect_err("users are refused");
    assert_eq!(refusal.code, code::LAST_ADMIN);
    assert!(has(&array.control, "late") && !has(&array.control, "db"));
}

/// Regression: the plan had the fingerprint of a state that it was not made of.
#[tokio::test]
async fn plan_beside_which_the_array_was_changed_is_outdated() {
    let array = Array::new().await;
    let beside = ConcurrentCreation { core: array.control.core.clone(), adds_at_plan: true };
    let plan = array.control.config.plan(&apply(&of_db()), &beside).await.expect("a plan");
    let request = ApplyConfig { fingerprint: Some(plan.fingerprint), ..apply(&of_db()) };
    let refusal = array.control.config.apply(request, &()).await.expect_err("it does not know of the other host");
    assert_eq!(refusal.code, code::CHANGED_MEANWHILE);
}

/// Access rules are rolled back as a whole, and the operator is told whose changes went with them.
#[tokio::test]
async fn rollback_that_takes_changes_of_others_back_says_so() {
    let array = Array::new().await;
    let control = &array.control;
    let request = ApplyConfig {
        initiators: vec!["iqn.2001-04.com.example:db".parse().expect("an iSCSI name")],
        within: Some("2s".parse().expect("a span")),
        ..apply(&of_db())
    };
    let add_late = async {
        while !has(control, "db") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        control.hosts.add(new_host("late", &["iqn.2001-04.com.example:late"])).await.expect("a host");
    };
    let (applied, ()) = tokio::join!(control.config.apply(request, &()), add_late);
    let refusal = applied.expect_err("the initiator never comes");
    assert_eq!(refusal.code, code::INITIATOR_LATE);
    assert!(refusal.message.ends_with("portals by others were rolled back as well"), "{refusal}");
    assert!(!has(control, "late") && !has(control, "db"));
}

/// Regression: the volumes were listed before the change lock was taken.
#[tokio::test]
async fn configuration_is_restored_without_a_volume_that_is_deleted_at_the_same_time() {
    let array = Array::new().await;
    let control = &array.control;
    let volume = NewVolume { backend: Some(NewBackend::Ram {}), ..new_volume("a", Some(Size::mib(1))) };
    let volume = control.volumes.create(volume).await.expect("a volume").name;
    control.hosts.add(new_host("web", &["iqn.2001-04.com.example:web"])).await.expect("a host");
    control.presentations.present(new_presentation("a", "web")).await.expect("a presentation");
    let version = control.config.restore_points().await.expect("configurations")[0].version;
    let unpresent = Unpresent { volume: volume.clone(), host: name("web"), target: None, force: false };
    control.presentations.unpresent(&unpresent).await.expect("no presentation any more");

    // The deletion is the next to get the change lock, and the restore gets it after the deletion.
    let turn = control.core.lock_changes().await;
    let release = async {
        tokio::time::sleep(UNTIL_LOCKED).await;
        drop(turn);
    };
    let deleted = control.volumes.delete(&volume, Removal::default());
    let restored = control.config.restore(version, RestoreConfig::default());
    let (deleted, restored, ()) = tokio::join!(deleted, restored, release);
    deleted.expect("deleted");
    restored.expect("restored");
    assert!(control.core.state().presentations.is_empty());
}
