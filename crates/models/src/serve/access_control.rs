//! Admission of requests: by the `Host` header, the origin of the page that sends them, and the API key.

use crate::serve::api::{ApiError, ApiResult};
use crate::serve::body::{Answer, Response};
use crate::serve::http::ServerLimits;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use std::net::IpAddr;

/// The result of the checks.
pub(crate) enum AccessDecision {
    /// The request is admitted; the page of this origin may read the answer.
    Allow(Option<HeaderValue>),
    /// The response to a CORS preflight request.
    Preflight(Box<Response>),
}

/// Checks a request's `Host` and `Origin` headers. `local` means that the server listens on the loopback interface only.
pub(crate) fn check<B>(limits: &ServerLimits, local: bool, request: &Request<B>) -> ApiResult<AccessDecision> {
    let headers = request.headers();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
    let host = request.uri().authority().map(|authority| authority.to_string()).or(host.map(|host| host.to_string()));
    if let Some(host) = &host
        && (local || !limits.allowed_hosts.is_empty())
        && !is_allowed_host(host, &limits.allowed_hosts)
    {
        return Err(ApiError::new(
            403,
            format!("the host `{}` is not allowed: start the server with `--allow-host`", truncate_for_message(host)),
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(AccessDecision::Allow(None)) };
    let shown = String::from_utf8_lossy(origin.as_bytes());
    let own = shown
        .split_once("://")
        .is_some_and(|(_, from)| host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(from)));
    let listed = limits
        .allowed_origins
        .iter()
        .any(|known| known == "*" || known.trim_end_matches('/').eq_ignore_ascii_case(&shown));
    if !own && !listed {
        let what = format!(
            "the origin `{}` is not allowed: start the server with `--allow-origin`",
            truncate_for_message(&shown)
        );
        return Err(ApiError::new(403, what));
    }
    let asks = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks {
        return Ok(AccessDecision::Allow(Some(origin.clone())));
    }
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    add_cors_headers(&mut response, Some(origin.clone()));
    let to = response.headers_mut();
    to.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let wanted = wanted.unwrap_or(HeaderValue::from_static("authorization, content-type"));
    to.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    to.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Ok(AccessDecision::Preflight(Box::new(response)))
}

/// Adds the CORS headers that let the page of an origin read a response.
pub(crate) fn add_cors_headers(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
}

/// Whether a host is allowed, or is one that DNS rebinding can't forge: an IP address or `localhost`.
fn is_allowed_host(host: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((six, _)) => six,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || allowed.iter().any(|own| own == "*" || own.eq_ignore_ascii_case(&name))
}

fn truncate_for_message(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The index of the API key that was sent; none if no keys are configured.
pub(crate) fn authenticate(keys: &[String], headers: &HeaderMap) -> ApiResult<Option<usize>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.trim().split_once(' '));
    let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, key)| key.trim());
    // Compares all bytes of all keys in constant time.
    let differs = |key: &String| {
        sent.bytes().zip(key.bytes()).fold(sent.len() ^ key.len(), |all, (a, b)| all | usize::from(a ^ b))
    };
    let found = keys.iter().enumerate().fold(None, |found, (n, key)| if differs(key) == 0 { Some(n) } else { found });
    found.map(Some).ok_or_else(|| ApiError::new(401, "an API key is required: send `Authorization: Bearer KEY`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: &str, origin: Option<&str>, method: &str) -> Request<()> {
        let mut builder = Request::builder().method(method).uri("/v1/models").header("host", host);
        if let Some(origin) = origin {
            builder = builder.header("origin", origin).header("access-control-request-method", "POST");
        }
        builder.body(()).expect("valid")
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        let with = |hosts: &[&str], origins: &[&str]| ServerLimits {
            allowed_hosts: hosts.iter().map(|host| host.to_string()).collect(),
            allowed_origins: origins.iter().map(|origin| origin.to_string()).collect(),
            ..ServerLimits::default()
        };
        let cases: [(&[&str], &[&str], bool, &str, Option<&str>, bool); 19] = [
            (&[], &[], true, "127.0.0.1:8080", None, true),
            (&[], &[], true, "localhost:8080", None, true),
            (&[], &[], true, "LOCALHOST.", None, true),
            (&[], &[], true, "[::1]:8080", None, true),
            // A foreign name that was rebound to this machine.
            (&[], &[], true, "rebound.example:8080", None, false),
            (&[], &[], true, "rebound.example:8080", Some("http://rebound.example:8080"), false),
            (&[], &[], false, "models.lan", None, true),
            (&["models.lan"], &[], false, "models.lan:80", None, true),
            (&["models.lan"], &[], false, "other.lan", None, false),
            (&["models.lan"], &[], true, "Models.LAN", None, true),
            (&["*"], &[], true, "anything", None, true),
            (&[], &[], true, "localhost:8080", Some("http://localhost:8080"), true),
            (&[], &[], true, "localhost:8080", Some("http://localhost:3000"), false),
            (&[], &[], true, "localhost:8080", Some("https://evil.example"), false),
            (&[], &[], true, "localhost:8080", Some("null"), false),
            (&[], &["https://app.example"], true, "localhost", Some("https://app.example"), true),
            (&[], &["https://app.example/"], true, "localhost", Some("https://app.example"), true),
            (&[], &["https://app.example"], true, "localhost", Some("https://app.example.evil"), false),
            (&[], &["*"], true, "localhost", Some("https://any.example"), true),
        ];
        for (hosts, origins, local, host, origin, fine) in cases {
            let limits = with(hosts, origins);
            let found = check(&limits, local, &request(host, origin, "POST"));
            assert_eq!(found.is_ok(), fine, "{host} {origin:?}");
            let asked = check(&limits, local, &request(host, origin, "OPTIONS"));
            match (asked, origin) {
                (Ok(AccessDecision::Preflight(response)), Some(origin)) => {
                    let allowed = response.headers().get("access-control-allow-origin").expect("there");
                    assert!(fine && allowed == origin && response.status() == 204);
                }
                (asked, origin) => assert_eq!(asked.is_ok(), fine && origin.is_none(), "{host}"),
            }
            if let Err(fault) = found {
                assert_eq!(fault.status, 403);
            }
        }
    }

    #[test]
    fn one_of_the_keys_is_asked_for() {
        let keys = ["first".to_string(), "second".to_string()];
        let sent = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", value.parse().expect("valid"));
            authenticate(&keys, &headers).ok().flatten()
        };
        for (value, found) in [
            ("Bearer first", Some(0)),
            ("bearer second", Some(1)),
            ("BEARER  second", Some(1)),
            ("bEaReR first ", Some(0)),
            ("Bearer firs", None),
            ("Bearer firstsecond", None),
            ("Bearer", None),
            ("Basic first", None),
            ("first", None),
        ] {
            assert_eq!(sent(value), found, "{value}");
        }
        assert!(authenticate(&keys, &HeaderMap::new()).is_err() && authenticate(&[], &HeaderMap::new()).is_ok());
    }
}
