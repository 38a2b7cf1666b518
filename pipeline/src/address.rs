//! Addresses of services as people write them: `HOST:PORT`, with or without `http://` before and `/` behind. All commands take them so.

/// The URL of a service: `http://` before an address that has no scheme, and no `/` behind it.
pub fn url(text: &str) -> String {
    let text = text.trim_end_matches('/');
    match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_an_url_with_or_without_its_scheme() {
        assert_eq!(url("127.0.0.1:4317"), "http://127.0.0.1:4317");
        assert_eq!(url("https://a:1/x/"), "https://a:1/x");
    }
}
