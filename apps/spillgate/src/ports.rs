//! Opens the ports of a process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use crate::serve_error::ServeError;

/// Listens there. `[::]` is all addresses of both families; on a system without IPv6, those of IPv4.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let lacks_ipv6 = |error: &std::io::Error| {
        matches!(
            error.raw_os_error(),
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
        )
    };
    match bound {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            let of_ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            TcpListener::bind(of_ipv4).await
        }
        bound => bound,
    }
}

/// The same, for the port that this flag names.
pub(crate) async fn bind(
    address: SocketAddr,
    flag: &'static str,
) -> Result<TcpListener, ServeError> {
    let bound = listen(address).await;
    bound.map_err(|cause| ServeError::Listen {
        address,
        flag,
        cause,
    })
}

/// The same without waiting for a runtime.
pub(crate) fn bind_now(
    address: SocketAddr,
    flag: &'static str,
) -> Result<std::net::TcpListener, ServeError> {
    let runtime = tokio::runtime::Handle::current();
    let bound = runtime.block_on(bind(address, flag))?;
    bound.into_std().map_err(|cause| ServeError::Listen {
        address,
        flag,
        cause,
    })
}

/// The address of loopback: that of IPv6 where there is none of IPv4.
pub(crate) fn loopback() -> IpAddr {
    let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
    match std::net::UdpSocket::bind((v4, 0)) {
        Ok(_) => v4,
        Err(_) => Ipv6Addr::LOCALHOST.into(),
    }
}
