//! Certificates of a set's links.

use spillgate_operator::render::Kind;

use crate::cluster::{Cluster, two_stage};

#[test]
fn pods_of_a_role_read_their_own_certificate_and_no_key_of_the_authority() {
    let cluster = Cluster::serving("traffic", two_stage());
    for (name, template) in cluster.templates() {
        let volumes = template["spec"]["volumes"].as_array().unwrap();
        let secrets = volumes
            .iter()
            .filter_map(|of| of["secret"]["secretName"].as_str());
        let secrets: Vec<&str> = secrets.collect();
        let role = template["metadata"]["labels"]["spillgate.dev/role"]
            .as_str()
            .unwrap();
        assert_eq!(
            secrets,
            [format!("spillgate-default-link-{role}")],
            "{name}"
        );
    }
    let secrets = cluster
        .objects
        .iter()
        .filter(|((kind, _), _)| *kind == Kind::Secret);
    let keys = secrets.map(|((_, name), secret)| {
        let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
        format!("{name} {keys:?}")
    });
    let keys: Vec<String> = keys.collect();
    assert_eq!(
        keys,
        [
            "spillgate-default-link-authority [\"certificates.json\"]",
            "spillgate-default-link-controller [\"ca.crt\", \"tls.crt\", \"tls.key\"]",
            "spillgate-default-link-gateway [\"ca.crt\", \"tls.crt\", \"tls.key\"]",
            "spillgate-default-link-worker [\"ca.crt\", \"tls.crt\", \"tls.key\"]",
        ]
    );
}

#[test]
fn certificates_are_renewed_and_pods_stay() {
    let mut cluster = Cluster::serving("traffic", two_stage());
    let secret = (Kind::Secret, "spillgate-default-link-worker".to_owned());
    let (before, pods) = (cluster.objects[&secret].clone(), cluster.templates());
    cluster.pass();
    assert_eq!(cluster.objects[&secret], before);
    cluster.now += 25 * 86_400;
    cluster.pass();
    assert_ne!(cluster.objects[&secret], before);
    assert_eq!(cluster.templates(), pods);
    // A Secret that somebody broke is made anew.
    cluster.observed.certificates = Some("broken".to_owned());
    cluster.pass();
    assert!(
        cluster
            .observed
            .certificates
            .as_ref()
            .unwrap()
            .starts_with('{')
    );
}
