//! Asking processes: `/status` and `/metrics` of their admin ports, and controllers about rollouts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use spillgate_link::revisions::operate;
use spillgate_link::tls::{LinkTls, LinkTlsFiles};
use spillgate_protocol::publication::{Operate, Operated, Operation};

use crate::authority::Certificates;
use crate::names::{ADMIN_PORT, LINK_PORT};

/// A process that does not answer within this time is asked again in the next pass.
const ANSWER_LIMIT: Duration = Duration::from_millis(900);
/// Largest answer of an admin port, in bytes.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How long a controller may take for a definition: it reads and checks it.
const OFFER_LIMIT: Duration = Duration::from_secs(10);

/// What the admin port of a pod answers.
pub(super) async fn get(ip: &str, path: &'static str) -> anyhow::Result<String> {
    let url = format!("http://{}{path}", host(ip, ADMIN_PORT));
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_LIMIT))
            .build()
            .into();
        let mut answer = agent.get(&url).call()?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string()?;
        anyhow::Ok(text)
    });
    asked.await?
}

/// Host and port; addresses of IPv6 have brackets.
fn host(ip: &str, port: u16) -> String {
    match ip.contains(':') {
        true => format!("[{ip}]:{port}"),
        false => format!("{ip}:{port}"),
    }
}

/// The operator among the processes of a set.
pub(super) struct Operator {
    set: Arc<str>,
    /// Files are what links read; they live as long as this.
    folder: tempfile::TempDir,
    written: String,
    tls: Option<Arc<LinkTls>>,
}

impl Operator {
    pub(super) fn new(set: &str) -> anyhow::Result<Self> {
        Ok(Operator {
            set: set.into(),
            folder: tempfile::tempdir()
                .context("certificates need a folder for temporary files")?,
            written: String::new(),
            tls: None,
        })
    }

    /// Shows these certificates from now on.
    pub(super) fn shows(&mut self, certificates: &Certificates) -> anyhow::Result<()> {
        let text = certificates.text();
        let data = certificates.of_role("operator").unwrap_or_default();
        if text == self.written || data.is_empty() {
            return Ok(());
        }
        for (file, text) in &data {
            spillgate_output::write(self.folder.path().join(file), text)?;
        }
        let file = |name: &str| self.folder.path().join(name);
        let files = LinkTlsFiles {
            ca: file("ca.crt"),
            cert: file("tls.crt"),
            key: file("tls.key"),
        };
        self.tls = Some(Arc::new(LinkTls::new(files, self.set.clone())?));
        self.written = text;
        Ok(())
    }

    /// Asks the controller at this address. The outer error: it cannot be reached.
    pub(super) async fn asks(&self, ip: &str, what: Operate) -> Result<Operated, String> {
        let limit = match &what {
            Operate::Query => ANSWER_LIMIT,
            _ => OFFER_LIMIT,
        };
        let set = self.set.clone();
        operate(
            &host(ip, LINK_PORT),
            Operation { set, what },
            self.tls.clone(),
            limit,
        )
        .await
    }
}
