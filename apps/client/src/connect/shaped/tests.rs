use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

fn trace(rows: &str) -> BandwidthTrace {
    BandwidthTrace::parse(&format!("second,mbps\n{rows}")).unwrap()
}

/// Both ends of a slow link: the client's, and the server's.
fn linked(
    rows: &str,
    round_trip: Duration,
) -> (Shaped<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
    let (near, far) = duplex(1 << 20);
    let link = SlowLink::new(trace(rows), round_trip);
    (Shaped::new(near, link), far)
}

/// The bytes that come to the other end within that time, from a writer that always has more.
async fn passes(rows: &str, within: Duration) -> u64 {
    let (mut near, mut far) = linked(rows, Duration::ZERO);
    let began = near.link.began;
    let writes = async move {
        let piece = vec![7; 100_000];
        while near.write_all(&piece).await.is_ok() {}
    };
    let reads = async {
        let mut came = 0;
        let mut space = vec![0; 1 << 16];
        while began.elapsed() < within {
            let left = within - began.elapsed();
            match tokio::time::timeout(left, far.read(&mut space)).await {
                Ok(n) => came += n.unwrap() as u64,
                Err(_) => break,
            }
        }
        came
    };
    tokio::select! {
        came = reads => came,
        () = writes => unreachable!("the other end is read"),
    }
}

#[tokio::test(start_paused = true)]
async fn over_a_whole_trace_as_much_passes_as_it_bears() {
    let rows = "0,3.6\n1,13.5\n2,0\n3,0\n4,26.3\n5,0.05\n6,90.8\n";
    for rounds in [1, 2, 5] {
        let within = Duration::from_secs(7) * rounds;
        let came = passes(rows, within).await as f64;
        let bears = trace(rows).carried(within) / 8.0;
        assert!(
            (came / bears - 1.0).abs() < 0.01,
            "{came} of {bears} in {within:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_stalls_goes_on() {
    let (mut near, mut far) = linked("0,8\n1,0\n4,8\n", Duration::ZERO);
    let began = near.link.began;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    near.write_all(&[1; 1000]).await.unwrap();
    let mut space = [0; 1000];
    let (flushed, read) = tokio::join!(near.flush(), far.read_exact(&mut space));
    flushed.unwrap();
    read.unwrap();
    let took = began.elapsed().as_millis();
    assert!((4001..4005).contains(&took), "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_bears_next_to_nothing_takes_one_packet() {
    let (mut near, _far) = linked("0,1e-300\n1000000000,0\n", Duration::ZERO);
    assert_eq!(near.write(&[0; 10_000]).await.unwrap(), PACKET);
    let day = Duration::from_secs(24 * 3600);
    let waits = tokio::time::timeout(day, near.write(&[0; 10]));
    assert!(waits.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_when_the_buffer_is_full() {
    let (mut near, _far) = linked("0,8\n", Duration::ZERO);
    let began = near.link.began;
    let taken = near.write(&[0; 1_000_000]).await.unwrap();
    // 20 ms at 1 MB/s, and a packet.
    assert!((20_000..22_000).contains(&taken), "{taken}");
    near.write_all(&[0; 10_000]).await.unwrap();
    let waited = began.elapsed().as_millis();
    assert!((8..13).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn half_of_the_round_trip_is_on_the_way_there() {
    let (mut near, mut far) = linked("0,1000\n", Duration::from_millis(60));
    let began = near.link.began;
    let server = async {
        let mut space = [0; 4];
        far.read_exact(&mut space).await.unwrap();
        let there = began.elapsed();
        far.write_all(b"pong").await.unwrap();
        there
    };
    let client = async {
        near.write_all(b"ping").await.unwrap();
        let mut space = [0; 4];
        near.read_exact(&mut space).await.unwrap();
        (space, began.elapsed())
    };
    let (there, (answer, all)) = tokio::join!(server, client);
    assert_eq!(&answer, b"pong");
    assert!((30..33).contains(&there.as_millis()), "{there:?}");
    assert!((60..65).contains(&all.as_millis()), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_after_what_was_sent_before_it() {
    let (mut near, mut far) = linked("0,8\n", Duration::from_millis(20));
    far.write_all(b"last").await.unwrap();
    drop(far);
    let mut all = Vec::new();
    // Nobody is there any more to whom something could be written.
    near.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last");
}
