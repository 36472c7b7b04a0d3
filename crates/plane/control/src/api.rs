//! REST, version 1: plural nouns under `/api/v1`, JSON in and out, problems as RFC 9457 has them.
//!
//! Every answer is an object with `schema` and one more key, the noun: `{"schema":1,"pools":[…]}`.

mod body;
mod problem;

pub use problem::Problem;

use crate::request::{
    AddGroup, AddLog, AddMember, EndSession, Events, Explain, GroupChange, GrowPool, HostChange, ImportPool, Locate,
    LockSnapshot, NewClone, NewCopy, NewDisk, NewHost, NewHostGroup, NewPool, NewPortal, NewPresentation, NewSnapshots,
    NewSpare, NewTarget, NewVolume, PoolSettings, PortalGroupSettings, PortalSettings, Record, RemoveLog, RemovePortal,
    Replace, Resize, RollBack, SetAuth, SetBalance, SetIsns, Spread, StartScrub, Unpresent, VolumeChange,
    VolumeSettings,
};
use crate::{Control, Wanted};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use body::{Asked, Body, Named};
use model::{DiskName, Name, PortalAddress, PortalGroupTag, Refusal, SessionNumber, SnapshotName, VolumeName, code};
use serde::Serialize;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

/// The version of the answers' form. Keys are added without raising it, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// The longest request that is read.
const REQUEST_BYTES_MAX: usize = 64 << 10;

type Shared = State<Arc<Control>>;
type Answer = Result<Response, Problem>;

/// The whole API over `control`.
pub fn router(control: Arc<Control>) -> Router {
    let v1 = Router::new()
        .route("/status", get(status))
        .route("/disks", get(disks).post(add_disk))
        .route("/disks/{name}", get(disk).delete(remove_disk))
        .route("/disks/{name}/fail", post(fail_disk))
        .route("/disks/{name}/locate", post(locate_disk))
        .route("/disks/{name}/replace", post(replace_disk))
        .route("/disks/{name}/spare", post(add_spare).delete(remove_spare))
        .route("/pools", get(pools).post(create_pool))
        .route("/pools/{name}", get(pool).patch(set_pool).delete(destroy_pool))
        .route("/pools/{name}/pause", post(pause_pool))
        .route("/pools/{name}/resume", post(resume_pool))
        .route("/pools/{name}/scrubs", get(scrubs).post(start_scrub).delete(stop_scrub))
        .route("/pools/{name}/groups", post(add_group))
        .route("/pools/{name}/members", post(add_member))
        .route("/pools/{name}/grow", post(grow_pool))
        .route("/pools/{name}/log", post(add_log))
        .route("/pools/{name}/log/removal", post(remove_log))
        .route("/pools/{name}/export", post(export_pool))
        .route("/pools/{name}/import", post(import_pool))
        .route("/pools/{name}/key", post(pool_key))
        .route("/pools/{name}/check", get(check_pool).post(repair_pool))
        .route("/pools/{name}/dump", get(dump_pool))
        .route("/volumes", get(volumes).post(create_volume))
        .route("/volumes/{*name}", get(volume).patch(change_volume).delete(delete_volume))
        .route("/snapshots", get(snapshots).post(create_snapshots))
        .route("/snapshots/{*name}", get(snapshot).patch(lock_snapshot).delete(delete_snapshot))
        .route("/clones", post(clone_snapshot))
        .route("/copies", post(copy_volume))
        .route("/copies/{*name}", axum::routing::delete(cancel_copy))
        .route("/rollbacks", post(roll_back))
        .route("/reservations/{*name}", axum::routing::delete(clear_reservations))
        .route("/auth", get(auth).patch(set_auth))
        .route("/hosts", get(hosts).post(add_host))
        .route("/hosts/{name}", patch(change_host).delete(remove_host))
        .route("/hosts/{name}/explain", get(explain))
        .route("/groups", get(groups).post(make_group))
        .route("/groups/{name}", patch(change_group).delete(dissolve_group))
        .route("/refused", get(refused))
        .route("/targets", get(targets).post(add_target))
        .route("/targets/{name}", axum::routing::delete(remove_target))
        .route("/presentations/spread", post(spread))
        .route("/presentations", get(presentations).post(present).delete(unpresent))
        .route("/sessions", get(sessions))
        .route("/sessions/{id}", get(session).delete(end_session))
        .route("/recording", get(record))
        .route("/latencies/{*name}", get(latencies))
        .route("/portals", get(portals).post(add_portal))
        .route("/portals/{address}", patch(set_portal).delete(remove_portal))
        .route("/portals/{address}/drain", post(drain_portal))
        .route("/portals/{address}/resume", post(resume_portal))
        .route("/portal-groups", get(portal_groups))
        .route("/portal-groups/{tag}", patch(set_portal_group))
        .route("/balance", get(balance).patch(set_balance))
        .route("/isns", get(isns).put(set_isns))
        .route("/events", get(events))
        .with_state(control);
    Router::new()
        .nest("/api/v1", v1)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
}

async fn status(State(control): Shared) -> Answer {
    answer("status", control.status().await?)
}

async fn disks(State(control): Shared) -> Answer {
    answer("disks", control.disks().await?)
}

async fn disk(State(control): Shared, Named(name): Named<DiskName>) -> Answer {
    answer("disk", control.disk_report(&name).await?)
}

async fn add_disk(State(control): Shared, Body(request): Body<NewDisk>) -> Answer {
    created("disk", to_its_end(async move { control.add_disk(request).await }).await?)
}

async fn remove_disk(State(control): Shared, Named(name): Named<DiskName>) -> Answer {
    to_its_end(async move { control.remove_disk(&name).await }).await?;
    Ok(gone())
}

async fn fail_disk(State(control): Shared, Named(name): Named<DiskName>) -> Answer {
    answer("pool", to_its_end(async move { control.fail_disk(&name).await }).await?)
}

async fn locate_disk(State(control): Shared, Named(name): Named<DiskName>, Body(how): Body<Locate>) -> Answer {
    answer("disk", control.locate_disk(&name, how).await?)
}

async fn replace_disk(State(control): Shared, Named(name): Named<DiskName>, Body(by): Body<Replace>) -> Answer {
    answer("pool", to_its_end(async move { control.replace_disk(&name, by).await }).await?)
}

async fn add_spare(State(control): Shared, Named(name): Named<DiskName>, Body(request): Body<NewSpare>) -> Answer {
    answer("disk", to_its_end(async move { control.add_spare(&name, request).await }).await?)
}

async fn remove_spare(State(control): Shared, Named(name): Named<DiskName>) -> Answer {
    to_its_end(async move { control.remove_spare(&name).await }).await?;
    Ok(gone())
}

async fn pools(State(control): Shared) -> Answer {
    answer("pools", control.pools().await?)
}

async fn pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("pool", control.pool_report(&name).await?)
}

async fn create_pool(State(control): Shared, Body(request): Body<NewPool>) -> Answer {
    created("pool", to_its_end(async move { control.create_pool(request).await }).await?)
}

async fn set_pool(State(control): Shared, Named(name): Named<Name>, Body(request): Body<PoolSettings>) -> Answer {
    answer("pool", to_its_end(async move { control.set_pool(&name, request).await }).await?)
}

async fn pause_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("pool", to_its_end(async move { control.pause_pool(&name, true).await }).await?)
}

async fn resume_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("pool", to_its_end(async move { control.pause_pool(&name, false).await }).await?)
}

async fn scrubs(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("scrubs", control.scrubs(&name).await?)
}

async fn start_scrub(State(control): Shared, Named(name): Named<Name>, Body(request): Body<StartScrub>) -> Answer {
    answer("pool", to_its_end(async move { control.start_scrub(&name, request).await }).await?)
}

async fn stop_scrub(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.stop_scrub(&name).await }).await?;
    Ok(gone())
}

async fn add_group(State(control): Shared, Named(name): Named<Name>, Body(request): Body<AddGroup>) -> Answer {
    answer("pool", to_its_end(async move { control.add_group(&name, request).await }).await?)
}

async fn add_member(State(control): Shared, Named(name): Named<Name>, Body(request): Body<AddMember>) -> Answer {
    answer("pool", to_its_end(async move { control.add_member(&name, request).await }).await?)
}

async fn grow_pool(State(control): Shared, Named(name): Named<Name>, Body(request): Body<GrowPool>) -> Answer {
    answer("pool", to_its_end(async move { control.grow_pool(&name, request).await }).await?)
}

async fn add_log(State(control): Shared, Named(name): Named<Name>, Body(request): Body<AddLog>) -> Answer {
    answer("pool", to_its_end(async move { control.add_log(&name, request).await }).await?)
}

async fn remove_log(State(control): Shared, Named(name): Named<Name>, Body(request): Body<RemoveLog>) -> Answer {
    answer("pool", to_its_end(async move { control.remove_log(&name, request).await }).await?)
}

async fn check_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("check", control.check_pool(&name, false).await?)
}

async fn repair_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("check", to_its_end(async move { control.check_pool(&name, true).await }).await?)
}

async fn dump_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("dump", control.dump_pool(&name).await?)
}

async fn import_pool(State(control): Shared, Named(name): Named<Name>, Body(request): Body<ImportPool>) -> Answer {
    answer("pool", to_its_end(async move { control.import_pool(&name, request).await }).await?)
}

async fn pool_key(State(control): Shared, Named(name): Named<Name>) -> Answer {
    answer("pool_key", control.pool_key(&name).await?)
}

async fn export_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.export_pool(&name).await }).await?;
    Ok(gone())
}

async fn destroy_pool(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.destroy_pool(&name).await }).await?;
    Ok(gone())
}

async fn volumes(State(control): Shared) -> Answer {
    answer("volumes", control.volumes().await?)
}

async fn volume(State(control): Shared, Named(name): Named<VolumeName>) -> Answer {
    answer("volume", control.volume_report(&name).await?)
}

async fn create_volume(State(control): Shared, Body(request): Body<NewVolume>) -> Answer {
    created("volume", to_its_end(async move { control.create_volume(request).await }).await?)
}

async fn change_volume(
    State(control): Shared,
    Named(name): Named<VolumeName>,
    Body(change): Body<VolumeChange>,
) -> Answer {
    let VolumeChange { size, settings } = change;
    let changed = to_its_end(async move {
        match size {
            Some(size) if settings.is_empty() => control.resize_volume(&name, Resize { size }).await,
            None => control.set_volume(&name, VolumeSettings { settings }).await,
            Some(_) => {
                let message = "a size and settings are two changes";
                Err(Refusal::new(code::REQUEST_INVALID, message, "send one after the other"))
            }
        }
    });
    answer("volume", changed.await?)
}

async fn delete_volume(State(control): Shared, Named(name): Named<VolumeName>) -> Answer {
    to_its_end(async move { control.delete_volume(&name).await }).await?;
    Ok(gone())
}

async fn snapshots(State(control): Shared) -> Answer {
    answer("snapshots", control.snapshots().await?)
}

async fn snapshot(State(control): Shared, Named(name): Named<SnapshotName>) -> Answer {
    answer("snapshot", control.snapshot_report(&name).await?)
}

async fn create_snapshots(State(control): Shared, Body(request): Body<NewSnapshots>) -> Answer {
    created("snapshots", to_its_end(async move { control.create_snapshots(request).await }).await?)
}

async fn lock_snapshot(
    State(control): Shared,
    Named(name): Named<SnapshotName>,
    Body(request): Body<LockSnapshot>,
) -> Answer {
    answer("snapshot", to_its_end(async move { control.lock_snapshot(&name, request).await }).await?)
}

async fn delete_snapshot(State(control): Shared, Named(name): Named<SnapshotName>) -> Answer {
    to_its_end(async move { control.delete_snapshot(&name).await }).await?;
    Ok(gone())
}

async fn clone_snapshot(State(control): Shared, Body(request): Body<NewClone>) -> Answer {
    created("volume", to_its_end(async move { control.clone_snapshot(request).await }).await?)
}

async fn copy_volume(State(control): Shared, Body(request): Body<NewCopy>) -> Answer {
    created("volume", to_its_end(async move { control.copy_volume(request).await }).await?)
}

async fn cancel_copy(State(control): Shared, Named(name): Named<VolumeName>) -> Answer {
    to_its_end(async move { control.cancel_copy(&name).await }).await?;
    Ok(gone())
}

async fn clear_reservations(State(control): Shared, Named(name): Named<VolumeName>) -> Answer {
    to_its_end(async move { control.clear_reservations(&name).await }).await?;
    Ok(gone())
}

async fn roll_back(State(control): Shared, Body(request): Body<RollBack>) -> Answer {
    answer("volume", to_its_end(async move { control.roll_back(request).await }).await?)
}

async fn auth(State(control): Shared) -> Answer {
    answer("auth", control.auth())
}

async fn set_auth(State(control): Shared, Body(request): Body<SetAuth>) -> Answer {
    answer("auth", to_its_end(async move { control.set_auth(request).await }).await?)
}

async fn hosts(State(control): Shared) -> Answer {
    answer("hosts", control.hosts())
}

async fn add_host(State(control): Shared, Body(request): Body<NewHost>) -> Answer {
    created("host", to_its_end(async move { control.add_host(request).await }).await?)
}

async fn remove_host(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.remove_host(&name).await }).await?;
    Ok(gone())
}

async fn change_host(State(control): Shared, Named(name): Named<Name>, Body(change): Body<HostChange>) -> Answer {
    answer("host", to_its_end(async move { control.change_host(&name, change).await }).await?)
}

async fn explain(State(control): Shared, Named(name): Named<Name>, Asked(asked): Asked<Explain>) -> Answer {
    answer("explanation", control.explain(&name, &asked.volume).await?)
}

async fn groups(State(control): Shared) -> Answer {
    answer("groups", control.groups_of_hosts())
}

async fn make_group(State(control): Shared, Body(request): Body<NewHostGroup>) -> Answer {
    created("group", to_its_end(async move { control.add_group_of_hosts(request).await }).await?)
}

async fn change_group(State(control): Shared, Named(name): Named<Name>, Body(change): Body<GroupChange>) -> Answer {
    answer("group", to_its_end(async move { control.change_group_of_hosts(&name, change).await }).await?)
}

async fn dissolve_group(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.remove_group_of_hosts(&name).await }).await?;
    Ok(gone())
}

async fn refused(State(control): Shared) -> Answer {
    answer("refused", control.refused_logins().await?)
}

async fn targets(State(control): Shared) -> Answer {
    answer("targets", control.targets())
}

async fn add_target(State(control): Shared, Body(request): Body<NewTarget>) -> Answer {
    created("target", to_its_end(async move { control.add_target(request).await }).await?)
}

async fn remove_target(State(control): Shared, Named(name): Named<Name>) -> Answer {
    to_its_end(async move { control.remove_target(&name).await }).await?;
    Ok(gone())
}

async fn presentations(State(control): Shared) -> Answer {
    answer("presentations", control.presentations())
}

async fn present(State(control): Shared, Body(request): Body<NewPresentation>) -> Answer {
    created("presentation", to_its_end(async move { control.present(request).await }).await?)
}

async fn spread(State(control): Shared, Body(request): Body<Spread>) -> Answer {
    created("presentations", to_its_end(async move { control.present_spread(request).await }).await?)
}

async fn unpresent(State(control): Shared, Asked(request): Asked<Unpresent>) -> Answer {
    to_its_end(async move { control.unpresent(&request).await }).await?;
    Ok(gone())
}

async fn sessions(State(control): Shared) -> Answer {
    answer("sessions", control.sessions().await?)
}

async fn session(State(control): Shared, Named(id): Named<SessionNumber>) -> Answer {
    answer("session", control.session(id.0).await?)
}

async fn end_session(
    State(control): Shared,
    Named(id): Named<SessionNumber>,
    Asked(request): Asked<EndSession>,
) -> Answer {
    let end = async move {
        match request.cid {
            Some(cid) => control.end_connection(id.0, cid).await,
            None => control.end_session(id.0, request.now).await,
        }
    };
    answer("ended", to_its_end(end).await?)
}

/// Its body is the file, which ends when the recording does; a reader that goes away ends it.
async fn record(State(control): Shared, Asked(asked): Asked<Record>) -> Answer {
    let recording = control.record(asked).await?;
    let file = futures_util::stream::unfold(recording, async |mut recording| {
        let bytes = recording.next().await?;
        Some((Ok::<_, Infallible>(bytes), recording))
    });
    Ok(([(CONTENT_TYPE, "application/vnd.tcpdump.pcap")], axum::body::Body::from_stream(file)).into_response())
}

async fn latencies(State(control): Shared, Named(name): Named<VolumeName>) -> Answer {
    answer("latencies", control.latencies(&name).await?)
}

async fn portals(State(control): Shared) -> Answer {
    answer("portals", control.portal_reports().await?)
}

async fn add_portal(State(control): Shared, Body(request): Body<NewPortal>) -> Answer {
    created("portal", to_its_end(async move { control.add_portal(request).await }).await?)
}

async fn set_portal(
    State(control): Shared,
    Named(address): Named<PortalAddress>,
    Body(request): Body<PortalSettings>,
) -> Answer {
    answer("portal", to_its_end(async move { control.set_portal(address, request).await }).await?)
}

async fn remove_portal(
    State(control): Shared,
    Named(address): Named<PortalAddress>,
    Asked(request): Asked<RemovePortal>,
) -> Answer {
    to_its_end(async move { control.remove_portal(address, request).await }).await?;
    Ok(gone())
}

async fn drain_portal(State(control): Shared, Named(address): Named<PortalAddress>) -> Answer {
    answer("portal", to_its_end(async move { control.drain_portal(address, true).await }).await?)
}

async fn resume_portal(State(control): Shared, Named(address): Named<PortalAddress>) -> Answer {
    answer("portal", to_its_end(async move { control.drain_portal(address, false).await }).await?)
}

async fn portal_groups(State(control): Shared) -> Answer {
    answer("portal_groups", control.portal_groups().await?)
}

async fn set_portal_group(
    State(control): Shared,
    Named(tag): Named<PortalGroupTag>,
    Body(request): Body<PortalGroupSettings>,
) -> Answer {
    answer("portal_group", to_its_end(async move { control.set_portal_group(tag, request).await }).await?)
}

async fn balance(State(control): Shared) -> Answer {
    answer("balance", control.balance())
}

async fn set_balance(State(control): Shared, Body(request): Body<SetBalance>) -> Answer {
    answer("balance", to_its_end(async move { control.set_balance(request).await }).await?)
}

async fn isns(State(control): Shared) -> Answer {
    answer("isns", control.isns())
}

async fn set_isns(State(control): Shared, Body(request): Body<SetIsns>) -> Answer {
    answer("isns", to_its_end(async move { control.set_isns(request).await }).await?)
}

async fn events(State(control): Shared, Asked(asked): Asked<Events>) -> Answer {
    let Events { after, since, severity, limit } = asked;
    answer("events", control.events(Wanted { after: after.unwrap_or(0), since, severity, limit }).await)
}

async fn no_route(uri: Uri) -> Problem {
    let message = format!("the API has no {}", uri.path().escape_debug());
    Problem(Refusal::new(code::ROUTE_UNKNOWN, message, "see docs/operate/cli.md"))
}

async fn no_method(uri: Uri) -> Problem {
    let message = format!("{} does not take this method", uri.path().escape_debug());
    Problem(Refusal::new(code::REQUEST_INVALID, message, "see docs/operate/cli.md"))
}

/// Runs a change to its end, also when the asker hangs up: half a change is no change.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::spawn(change).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a change broke off");
        Err(Refusal::new(code::INTERNAL, "the change broke off", "report this with the daemon's log"))
    })
}

fn answer<T: Serialize>(noun: &str, value: T) -> Answer {
    json(StatusCode::OK, noun, value)
}

fn created<T: Serialize>(noun: &str, value: T) -> Answer {
    json(StatusCode::CREATED, noun, value)
}

fn json<T: Serialize>(status: StatusCode, noun: &str, value: T) -> Answer {
    let value = serde_json::to_value(value).map_err(|error| {
        tracing::error!(%error, noun, "cannot be said in JSON");
        Refusal::new(code::INTERNAL, "the answer cannot be said in JSON", "report this with the daemon's log")
    })?;
    let mut object = serde_json::Map::new();
    object.insert("schema".to_owned(), SCHEMA.into());
    object.insert(noun.to_owned(), value);
    Ok((status, axum::Json(object)).into_response())
}

fn gone() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
