//! Processes that register, and are listed.

use std::time::Duration;

use spillgate_pipeline::id::DeviceId;
use spillgate_protocol::membership::{MEMBERS_MAX, MemberState};
use spillgate_protocol::message::Address;

use super::logs::Logs;
use super::process::{CONTROLLER, DEVICE, GATEWAY, PATIENCE, Process, any, until};
use super::requests;

const OTHER_DEVICE: Address = Address::Device(DeviceId(1));

fn said(process: &Process) -> String {
    process.heard.members.lock().join(", ")
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_registers_is_dialled_by_the_gateways_and_gone_when_it_leaves() {
    let control = Process::new(CONTROLLER, 1, Duration::ZERO);
    let control_at = control.listens(any()).await;
    let gateway = Process::new(GATEWAY, 2, Duration::ZERO);
    gateway.dials(control_at);
    gateway.heard.waits_for("met 1").await;

    let worker = Process::listening(DEVICE, 3).await;
    worker.dials(control_at);
    gateway.heard.waits_for("met 3").await;
    worker.heard.waits_for("met 2").await;
    assert_eq!(said(&gateway), "control joined, a-1 joined");
    assert_eq!(said(&control), "front joined, a-1 joined");
    let listed = control.links.members();
    let listed = listed.iter().find(|(member, _)| &*member.name == "a-1");
    let (member, state) = listed.unwrap();
    let host = member.address.as_deref().unwrap();
    assert!(
        host.starts_with("127.0.0.1:"),
        "the host that was seen: {host}"
    );
    assert_eq!(*state, MemberState::Serving);

    worker.links.leave();
    let state = |process: &Process| {
        let members = process.links.members();
        let of = members.into_iter().find(|(m, _)| &*m.name == "a-1");
        of.map(|(_, state)| state)
    };
    for process in [&control, &gateway] {
        until("it leaves", || state(process) == Some(MemberState::Leaving)).await;
    }
    worker.ends().await;
    for process in [&control, &gateway] {
        until("it has left", || state(process).is_none()).await;
    }
    assert!(!gateway.links.reaches(DEVICE));
    assert_eq!(said(&gateway), "control joined, a-1 joined, a-1 left");
}

#[tokio::test(start_paused = true)]
async fn the_last_list_holds_while_the_controller_begins_anew() {
    let control = Process::new(CONTROLLER, 1, Duration::ZERO);
    let control_at = control.listens(any()).await;
    let gateway = Process::new(GATEWAY, 2, Duration::ZERO);
    gateway.dials(control_at);
    let worker = Process::listening(DEVICE, 3).await;
    worker.dials(control_at);
    gateway.heard.waits_for("met 3").await;
    control.ends().await;
    gateway.heard.waits_for("parted 1").await;
    assert!(gateway.links.reaches(DEVICE));
    let anew = Process::new(CONTROLLER, 4, Duration::ZERO);
    anew.listens(control_at).await;
    gateway.heard.waits_for("met 4").await;
    anew.heard.waits_for("met 3").await;
    // Another worker finds the gateway by the new life of the controller.
    let other = Process::listening(OTHER_DEVICE, 5).await;
    other.dials(control_at);
    gateway.heard.waits_for("met 5").await;
    assert!(!said(&gateway).contains("left"), "{}", said(&gateway));
}

#[tokio::test(start_paused = true)]
async fn two_workers_with_one_name_are_named_on_both_sides() {
    let control = Process::new(CONTROLLER, 1, Duration::ZERO);
    let control_at = control.listens(any()).await;
    let logs = Logs::begin();
    let older = Process::listening(DEVICE, 2).await;
    older.dials(control_at);
    control.heard.waits_for("met 2").await;
    let newer = Process::listening(DEVICE, 3).await;
    newer.dials(control_at);
    control.heard.waits_for("met 3").await;
    control.heard.waits_for("parted 2").await;
    logs.waits_for("a-1", "a-1 at 127.0.0.1:").await;
    let said = "another process has greeted by the name a-1 since; give this one another --name";
    logs.waits_for(&control_at.to_string(), said).await;
    // It dials again, and stays out while the newer one is there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(control.links.reaches(DEVICE));
    newer.ends().await;
    control.heard.waits_for_last("met 2").await;
}

#[tokio::test(start_paused = true)]
async fn a_second_controller_stands_by() {
    let [a, b] = [1, 2].map(|life| Process::named(CONTROLLER, life, &format!("control-{life}")));
    let (at_a, at_b) = (a.listens(any()).await, b.listens(any()).await);
    let logs = Logs::begin();
    let gateway = Process::new(GATEWAY, 3, Duration::ZERO);
    gateway.dials(at_b);
    gateway.heard.waits_for("met 2").await;
    gateway.dials(at_a);
    gateway.heard.waits_for("met 1").await;
    assert!(gateway.heard.has("parted 2"));
    logs.waits_for("control-2", "stands by while control-1 is there")
        .await;
    a.ends().await;
    gateway.heard.waits_for_last("met 2").await;
}

#[tokio::test(start_paused = true)]
async fn two_processes_with_one_name_that_dial_each_other_say_so() {
    let control = Process::named(CONTROLLER, 1, "twin");
    let at = control.listens(any()).await;
    let gateway = Process::named(GATEWAY, 2, "twin");
    let logs = Logs::begin();
    gateway.dials(at);
    let said = "two processes have the name twin";
    logs.waits_for(&at.to_string(), said).await;
    logs.waits_for("127.0.0.1", said).await;
    assert!(gateway.heard.is_empty() && control.heard.is_empty());
    assert!(!gateway.links.reaches(CONTROLLER) && !control.links.reaches(GATEWAY));
}

// Over a second: a thousand sessions.
#[tokio::test(start_paused = true)]
async fn a_flood_of_registrations_is_refused_and_harms_nobody() {
    let control = Process::new(CONTROLLER, 1, Duration::ZERO);
    let at = control.listens(any()).await;
    let gateway = Process::new(GATEWAY, 2, Duration::ZERO);
    gateway.dials(at);
    let worker = Process::listening(DEVICE, 3).await;
    worker.dials(at);
    gateway.heard.waits_for("met 3").await;
    let logs = Logs::begin();
    let flood: Vec<Process> = (0..MEMBERS_MAX as u64)
        .map(|i| Process::named(OTHER_DEVICE, 100 + i, &format!("flood-{i}")))
        .collect();
    flood.iter().for_each(|of| of.dials(at));
    logs.waits_for(&at.to_string(), "there is no room for flood-")
        .await;
    logs.waits_for("127.0.0.1", "there is no room for flood-")
        .await;
    let members = control.links.members();
    assert_eq!(members.len(), MEMBERS_MAX);
    // Those that were there before serve on.
    let message = requests(&gateway, gateway.now() + PATIENCE);
    gateway.links.send(message, Vec::new()).unwrap();
    until("the request comes", || {
        !worker.heard.deadlines.lock().is_empty()
    })
    .await;
    assert!(!gateway.heard.has("parted 1") && !gateway.heard.has("parted 3"));
}
