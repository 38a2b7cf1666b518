//! Revisions beside each other: shares, undo, gaps, and what `/status` and metrics say of them.

use tokio::task::JoinHandle;

use super::*;

/// Streams with names `s0`, `s1` and so on, that send for as long as more is wanted.
struct Streams {
    wanted: Arc<AtomicU64>,
    answered: Vec<Arc<AtomicU64>>,
    tasks: Vec<JoinHandle<Vec<pb::Result>>>,
}

impl Streams {
    fn open(server: &Server, n: usize) -> Self {
        let wanted = Arc::new(AtomicU64::new(u64::MAX));
        let answered: Vec<Arc<AtomicU64>> = (0..n).map(|_| Arc::default()).collect();
        let tasks = answered.iter().enumerate().map(|(i, answered)| {
            let (client, wanted) = (server.client.clone(), wanted.clone());
            let answered = answered.clone();
            tokio::spawn(async move { send_as(&format!("s{i}"), client, answered, wanted).await })
        });
        Streams {
            tasks: tasks.collect(),
            wanted,
            answered,
        }
    }

    /// Each has so many more answers.
    async fn more(&self, n: u64) {
        let give_up = Instant::now() + PATIENCE;
        let read = |of: &Arc<AtomicU64>| of.load(Ordering::Relaxed);
        let goals: Vec<u64> = self.answered.iter().map(|of| read(of) + n).collect();
        while self
            .answered
            .iter()
            .map(read)
            .zip(&goals)
            .any(|(now, goal)| now < *goal)
        {
            assert!(Instant::now() < give_up, "no results");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// All results of each.
    async fn end(self) -> Vec<Vec<pb::Result>> {
        self.wanted.store(0, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in self.tasks {
            all.push(task.await.unwrap());
        }
        all
    }
}

/// A module that takes no time: any number of streams is served.
const QUICK: &str = "
emulated:
  a: { \"-\": { alpha: 1us, beta: 1us, max: 8 }, \"away.pt\": { alpha: 1us, beta: 1us, max: 8 } }
  b: { \"-\": { alpha: 1us, beta: 1us, max: 8 } }
";

/// Its pictures are larger than one client may hold.
const PICTURES: &str = "
name: p
slo: 2s
limits: { pixels: 1000000000 }
modules:
  a: { op: detector, model: away.pt, inputs: { image: $source.frame }, device: emulated, batch: { max: 8 } }
outputs: { vehicles: $a.vehicles }
";

fn with_batches(text: &str) -> String {
    text.replace("max: 1", "max: 8")
}

impl Server {
    async fn quick(name: &str, arguments: &[&str]) -> Self {
        let server = Server::start_with(name, arguments).await;
        std::fs::write(server.folder.join("p.profile.yaml"), QUICK).unwrap();
        let line = tokio::task::block_in_place(|| server.reload(&with_batches(ONE)));
        assert!(line.contains("pipelines reloaded: p"), "{line}");
        server
    }

    fn reloads(&self, text: &str) -> String {
        tokio::task::block_in_place(|| self.reload(text))
    }

    async fn page(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.admin);
        let fetch = move || ureq::get(&url).call().unwrap().body_mut().read_to_string();
        tokio::task::spawn_blocking(fetch).await.unwrap().unwrap()
    }

    /// What `/status` says of the revisions: state and share.
    async fn revisions(&self) -> Vec<(String, f64)> {
        let status: serde_json::Value = serde_json::from_str(&self.page("/status").await).unwrap();
        // In a gap there are none.
        let all = status["pipelines"][0]["revisions"].as_array();
        let each = all.into_iter().flatten().map(|of| {
            let state = of["state"].as_str().unwrap().to_owned();
            (state, of["share"].as_f64().unwrap())
        });
        each.collect()
    }

    /// The same once it is this.
    async fn until(&self, expected: &[(&str, f64)]) {
        let give_up = Instant::now() + PATIENCE;
        let expected: Vec<(String, f64)> = expected
            .iter()
            .map(|(state, share)| ((*state).to_owned(), *share))
            .collect();
        loop {
            let now = self.revisions().await;
            if now == expected {
                return;
            }
            assert!(Instant::now() < give_up, "{now:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn completed(results: &[pb::Result]) {
    let numbers: Vec<u64> = results.iter().map(|r| r.number).collect();
    assert_eq!(numbers, (0..results.len() as u64).collect::<Vec<u64>>());
    let others = results
        .iter()
        .filter(|r| r.outcome() != pb::Outcome::Completed);
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&pb::Result>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_objective_that_changes_and_a_file_that_is_broken_lose_nothing_under_load() {
    let mut server = Server::quick("load", &[]).await;
    let streams = Streams::open(&server, 8);
    streams.more(10).await;
    let line = server.reloads("name: p\nslo: [");
    assert!(
        line.contains("pipelines not reloaded, what was there stays"),
        "{line}"
    );
    streams.more(10).await;
    let line = server.reloads(&with_batches(ONE).replace("slo: 2s", "slo: 5s"));
    assert!(
        line.contains("pipelines reloaded: p; requests under way end as they began; revision "),
        "{line}"
    );
    assert_eq!(server.describes().await, [("p".to_owned(), 5000.0, 1)]);
    streams.more(10).await;
    for results in streams.end().await {
        completed(&results);
    }
    server.until(&[("watching", 1.0), ("idle", 0.0)]).await;
    let metrics = server.page("/metrics").await;
    let of = |what: &str| {
        metrics
            .lines()
            .filter(|line| line.starts_with(what))
            .count()
    };
    assert_eq!(of("spillgate_revision_share{"), 2, "{metrics}");
    assert_eq!(of("spillgate_revision_requests_total{"), 8, "{metrics}");
    assert!(
        metrics.contains("spillgate_pipeline_slo_seconds{pipeline=\"p\"} 5"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_the_streams_goes_first_and_each_stream_stays() {
    let server = Server::quick("share", &["--rollout", "30%,watch=2s"]).await;
    server.until(&[("stable", 1.0)]).await;
    let streams = Streams::open(&server, 24);
    streams.more(5).await;
    let line = server.reloads(&with_batches(TWO));
    assert!(line.contains("serves 30% of the streams"), "{line}");
    server.until(&[("stable", 1.0)]).await;
    streams.more(5).await;
    let mut first = 0;
    for results in streams.end().await {
        completed(&results);
        let modules: Vec<usize> = results.iter().map(|r| r.timings.len()).collect();
        // From the old one to the new one, once.
        assert!(modules.is_sorted() && modules[0] == 1, "{modules:?}");
        assert_eq!(modules.last(), Some(&2));
        first += modules.iter().filter(|n| **n == 1).count();
    }
    assert!(first > 24 * 5, "the old one served beside");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_former_file_is_an_undo_and_starts_nothing() {
    let mut server = Server::quick("undo", &[]).await;
    server.until(&[("watching", 1.0), ("idle", 0.0)]).await;
    let streams = Streams::open(&server, 4);
    streams.more(5).await;
    // The one before is let go: there is room for two.
    server.reloads(&with_batches(TWO));
    assert_eq!(server.describes().await, [("p".to_owned(), 3000.0, 2)]);
    streams.more(5).await;
    // Comments and the time of the file are no other revision.
    let line = server.reloads(&format!("# As before.\n{}", with_batches(ONE)));
    assert!(
        line.contains("the former revision ") && line.contains("serves again"),
        "{line}"
    );
    assert_eq!(server.describes().await, [("p".to_owned(), 2000.0, 1)]);
    streams.more(5).await;
    server.until(&[("stable", 1.0), ("taken_back", 0.0)]).await;
    let line = server.reloads(&with_batches(ONE));
    assert!(line.ends_with("nothing has changed"), "{line}");
    for results in streams.end().await {
        completed(&results);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_ends_before_the_next_streams_stay_and_hear_of_the_gap() {
    let mut server = Server::quick("gap", &["--rollout", "recreate,watch=1s"]).await;
    let streams = Streams::open(&server, 4);
    streams.more(5).await;
    let line = server.reloads(&with_batches(TWO));
    assert!(
        line.contains("pipelines reloaded: p; requests under way end as they began; revision "),
        "{line}"
    );
    assert_eq!(server.describes().await, [("p".to_owned(), 3000.0, 2)]);
    streams.more(20).await;
    let mut n_refused = 0;
    for results in streams.end().await {
        assert_eq!(results.last().unwrap().timings.len(), 2);
        let others = results
            .iter()
            .filter(|r| r.outcome() != pb::Outcome::Completed);
        for refused in others {
            assert_eq!(
                (refused.outcome(), refused.reason.as_str()),
                (pb::Outcome::Refused, "replaced")
            );
            n_refused += 1;
        }
    }
    assert!(n_refused > 0, "there was a gap");
    // One that cannot start: the one before is started again.
    let line = server.reloads(PICTURES);
    assert!(
        line.contains("not reloaded, what was there stays: it could not start: limits.pixels of p"),
        "{line}"
    );
    server.until(&[("stable", 1.0), ("taken_back", 0.0)]).await;
    assert_eq!(server.describes().await, [("p".to_owned(), 3000.0, 2)]);
    let streams = Streams::open(&server, 1);
    streams.more(5).await;
    completed(&streams.end().await[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_offer_takes_the_place_of_a_rollout_under_way_and_nothing_stays() {
    let server = Server::quick("offers", &["--rollout", "30%,watch=20s"]).await;
    server.until(&[("old", 0.7), ("moving", 0.3)]).await;
    let line = server.reloads(&with_batches(TWO));
    assert!(line.contains("serves 30% of the streams"), "{line}");
    server.until(&[("old", 0.7), ("moving", 0.3)]).await;
    // The text of the start: its profile has changed since, so it is another revision.
    let line = server.reloads(ONE);
    assert!(line.contains("serves 30% of the streams"), "{line}");
    let line = server.reloads(&with_batches(ONE).replace("slo: 2s", "slo: 4s"));
    assert!(line.contains("serves 30% of the streams"), "{line}");
    server.until(&[("old", 0.7), ("moving", 0.3)]).await;
}
