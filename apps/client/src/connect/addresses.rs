//! The addresses of a server: all of each name that is given. A connection goes to the first one that answers.
//!
//! Connections take turns: the next one begins with the next server of a list, and with the next address of a name
//! that has several of one family, as a name of several gateways has. Between families the system's order holds, so
//! that a machine with two of them is one client and not two.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A further address is tried when those before it have not answered for this long, as RFC 8305 recommends.
pub(crate) const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Connects to one of the servers, which are `HOST:PORT`; also returns the position of that server.
///
/// # Errors
/// When no address answers: the error of the first one.
pub(super) async fn connect(servers: &[&str], turn: usize) -> io::Result<(usize, TcpStream)> {
    let mut addresses = Vec::new();
    let mut unknown = None;
    for i in 0..servers.len() {
        let server = (turn + i) % servers.len();
        match lookup_host(servers[server]).await {
            Ok(found) => {
                let found = in_turn(found.collect(), turn / servers.len());
                addresses.extend(found.into_iter().map(|address| (server, address)));
            }
            Err(error) => {
                unknown.get_or_insert(error);
            }
        }
    }
    if addresses.is_empty() {
        return Err(unknown.unwrap_or_else(|| io::Error::other("the name has no address")));
    }
    race(addresses).await
}

/// The addresses of a name in the order in which they are tried: families alternate, and within each the next one
/// begins at each turn.
fn in_turn(found: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    let first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut preferred, mut other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|a| a.is_ipv6() == first);
    for family in [&mut preferred, &mut other] {
        let n = family.len().max(1);
        family.rotate_left(turn % n);
    }
    let n = preferred.len().max(other.len());
    let at = |family: &[SocketAddr], i: usize| family.get(i).copied();
    (0..n)
        .flat_map(|i| [at(&preferred, i), at(&other, i)])
        .flatten()
        .collect()
}

/// The first connection that stands. Each address is tried when the one before has failed or is slow.
async fn race(addresses: Vec<(usize, SocketAddr)>) -> io::Result<(usize, TcpStream)> {
    let mut attempts = JoinSet::new();
    let mut rest = addresses.into_iter();
    let mut first_error = None;
    loop {
        if let Some((server, address)) = rest.next() {
            attempts.spawn(async move { TcpStream::connect(address).await.map(|s| (server, s)) });
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(connected))) => return Ok(connected),
                Some(Ok(Err(error))) => {
                    first_error.get_or_insert(error);
                }
                Some(Err(_)) => {}
                None => {
                    return Err(first_error.unwrap_or_else(|| io::Error::other("no address answers")));
                }
            },
            () = sleep(NEXT_AFTER), if rest.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn families_keep_their_order_and_addresses_of_one_take_turns() {
        let of = |all: &[&str]| all.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>();
        let localhost = of(&["[::1]:7", "127.0.0.1:7"]);
        for turn in 0..3 {
            assert_eq!(in_turn(localhost.clone(), turn), localhost);
        }
        let gateways = of(&["10.0.0.1:7", "10.0.0.2:7", "[fd00::1]:7"]);
        let first = of(&["10.0.0.1:7", "[fd00::1]:7", "10.0.0.2:7"]);
        assert_eq!(in_turn(gateways.clone(), 0), first);
        let second = of(&["10.0.0.2:7", "[fd00::1]:7", "10.0.0.1:7"]);
        assert_eq!(in_turn(gateways, 1), second);
        assert_eq!(in_turn(Vec::new(), 3), []);
    }

    #[tokio::test]
    async fn every_server_is_tried_and_each_connection_begins_with_the_next() {
        // A port that is bound and does not listen refuses, and is given to nobody else.
        let refuses = tokio::net::TcpSocket::new_v4().unwrap();
        refuses.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [refuses.local_addr(), listener.local_addr()];
        let addresses = addresses.map(|address| address.unwrap().to_string());
        let servers: Vec<&str> = addresses.iter().map(String::as_str).collect();
        for turn in 0..2 {
            let (server, _) = connect(&servers, turn).await.unwrap();
            assert_eq!(server, 1, "of turn {turn}");
        }
        let error = connect(&servers[..1], 0).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = other.local_addr().unwrap().to_string();
        let both = [servers[1], &other];
        for turn in 0..4 {
            assert_eq!(connect(&both, turn).await.unwrap().0, turn % 2);
        }
    }
}
