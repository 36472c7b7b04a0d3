//! Problems appear alike in the status, the findings, the metrics and the alerts, until they end.

use super::*;
use model::{EventCode, Subject, SubjectKind, event};

/// Critical problems by the status, the findings and the metrics; the alerts; the sentence.
async fn told(served: &Served) -> (Vec<u64>, Vec<(String, u64)>, String) {
    let status = served.json(Method::GET, "/api/v1/status", Value::Null).await.1;
    let problems = status["status"]["problems"].as_array().expect("a list").clone();
    let critical = problems.iter().filter(|problem| problem["severity"] == "critical").count() as u64;
    let findings = served.json(Method::GET, "/api/v1/findings", Value::Null).await.1;
    let bad = findings["findings"].as_array().expect("a list").iter().filter(|it| it["grade"] == "bad").count() as u64;
    let metrics = served.send(Method::GET, "/api/v1/metrics", "", String::new()).await.2;
    let line = metrics.lines().find_map(|line| line.strip_prefix("blockyard_problems{severity=\"critical\"} "));
    let counted = line.expect("it is told").parse().expect("a number");
    let alerts = served.json(Method::GET, "/api/v1/alerts", Value::Null).await.1;
    let alert =
        |it: &Value| (it["code"].as_str().expect("a code").to_owned(), it["number"].as_u64().expect("a number"));
    let alerts = alerts["alerts"].as_array().expect("a list").iter().map(alert).collect();
    (vec![critical, bad, counted], alerts, status["status"]["summary"].as_str().expect("a sentence").to_owned())
}

#[tokio::test]
async fn all_doors_tell_what_events_say_is_so_until_it_ends() {
    let served = Served::new().await;
    let node = Subject::new(SubjectKind::Node, &"node1");
    let code = |code: EventCode| code.to_string();
    assert_eq!(told(&served).await, (vec![0, 0, 0], vec![], "All good".to_owned()));
    served.control.core.raise(event::AUDIT_DAMAGED, node.clone(), "record 3 is missing");
    let (counts, alerts, verdict) = told(&served).await;
    assert_eq!((counts, alerts.len()), (vec![1, 1, 1], 1));
    assert!(
        verdict.starts_with("node node1 is missing part of its audit log: see blockyard audit verify"),
        "{verdict}"
    );
    let (told_as, number) = &alerts[0];
    assert_eq!(*told_as, code(event::AUDIT_DAMAGED));
    let acknowledge = |number: u64| format!("/api/v1/alerts/{number}/acknowledge");
    let (status, body) = served.json(Method::POST, &acknowledge(*number), json!({})).await;
    assert_eq!((status, &body["alert"]["number"]), (StatusCode::OK, &json!(number)), "{body}");
    assert_eq!(told(&served).await, (vec![0, 0, 0], vec![], "All good".to_owned()));
    let (status, body) = served.json(Method::POST, &acknowledge(*number), json!({})).await;
    assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("BY-1874")), "{body}");
}

#[tokio::test]
async fn alert_that_ends_by_itself_cannot_be_acknowledged() {
    let served = Served::new().await;
    let text = str::to_owned;
    let problem = model::Problem {
        severity: model::Severity::Critical,
        subject: text("audit"),
        state: text("unusable"),
        meaning: text("the disk is full"),
        action: text("make room"),
    };
    // This portal is known to nothing else.
    let portal = Subject::new(SubjectKind::Portal, &"10.0.0.9:8443");
    served.control.notices.add(event::WEB_UNUSABLE, portal.clone(), problem);
    let (counts, alerts, verdict) = told(&served).await;
    assert_eq!((counts, verdict.as_str()), (vec![1, 1, 1], "audit is unusable: make room"));
    let path = format!("/api/v1/alerts/{}/acknowledge", alerts[0].1);
    let (status, body) = served.json(Method::POST, &path, json!({})).await;
    assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("BY-1875")), "{body}");
    served.control.notices.settle(event::WEB_UNUSABLE, portal, event::WEB_OPENED, "it is free");
    assert_eq!(told(&served).await, (vec![0, 0, 0], vec![], "All good".to_owned()));
}
