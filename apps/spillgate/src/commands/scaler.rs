//! The port on which KEDA asks, as a flag.

use std::net::SocketAddr;

use clap::Args;
use spillgate_telemetry::logging::say;
use tokio::net::TcpListener;

use super::address::listen;
use crate::ports::bind;
use crate::serve_error::ServeError;

/// Where KEDA asks.
#[derive(Args)]
pub(crate) struct ScalerArgs {
    /// Address on which KEDA asks how many workers each module wants: gRPC in plain text, externalscaler.ExternalScaler. For a process
    /// with controllers
    #[arg(long, value_name = "ADDRESS", env = "SPILLGATE_SCALER_LISTEN", value_parser = listen)]
    scaler_listen: Option<SocketAddr>,
}

impl ScalerArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.scaler_listen.is_some()
    }

    /// Opens the port, if one is wanted. It answers once the process serves.
    pub(crate) async fn open(&self) -> Result<Option<TcpListener>, ServeError> {
        let Some(address) = self.scaler_listen else {
            return Ok(None);
        };
        let listener = bind(address, "--scaler-listen").await?;
        let address = listener.local_addr().unwrap_or(address);
        say(&format!(
            "wanted workers on grpc://{address} (externalscaler.ExternalScaler)"
        ));
        Ok(Some(listener))
    }
}
