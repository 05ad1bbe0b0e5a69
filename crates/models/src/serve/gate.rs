//! Which requests come in: by the host that they name, the page that sends them, and their key.

use crate::serve::api::{Fault, Parsed};
use crate::serve::http::Limits;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use std::net::IpAddr;

/// What is done with a request.
pub(crate) enum Passed {
    /// It is answered; the page of this origin may read the answer.
    On(Option<HeaderValue>),
    /// A browser asks whether it may send another.
    Preflight(Box<Response>),
}

/// Looks at a request's `Host` and `Origin`. `local` says that the server listens on the machine alone.
pub(crate) fn check<B>(limits: &Limits, local: bool, request: &Request<B>) -> Parsed<Passed> {
    let headers = request.headers();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
    let host = request.uri().authority().map(|authority| authority.to_string()).or(host.map(|host| host.to_string()));
    if let Some(host) = &host
        && (local || !limits.hosts.is_empty())
        && !known(host, &limits.hosts)
    {
        return Err(Fault::new(
            403,
            format!("the host `{}` is not served: start the server with `--allow-host`", short(host)),
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(Passed::On(None)) };
    let shown = String::from_utf8_lossy(origin.as_bytes());
    let own = shown
        .split_once("://")
        .is_some_and(|(_, from)| host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(from)));
    let listed =
        limits.origins.iter().any(|known| known == "*" || known.trim_end_matches('/').eq_ignore_ascii_case(&shown));
    if !own && !listed {
        let what = format!("pages of `{}` may not ask this server: start it with `--allow-origin`", short(&shown));
        return Err(Fault::new(403, what));
    }
    let asks = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks {
        return Ok(Passed::On(Some(origin.clone())));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    mark(&mut response, Some(origin.clone()));
    let to = response.headers_mut();
    to.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let wanted = wanted.unwrap_or(HeaderValue::from_static("authorization, content-type"));
    to.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    to.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Ok(Passed::Preflight(Box::new(response)))
}

/// Lets the page of an origin read an answer.
pub(crate) fn mark(response: &mut Response, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
}

/// Names that are allowed, and what no foreign page can make its name mean: addresses, and this machine.
fn known(host: &str, allowed: &[String]) -> bool {
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

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Which of the keys was sent, by its place; nothing where none is asked for.
pub(crate) fn key(keys: &[String], headers: &HeaderMap) -> Parsed<Option<usize>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.trim().split_once(' '));
    let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, key)| key.trim());
    // Every byte of every key is compared, whether or not one before it differs.
    let differs = |key: &String| {
        sent.bytes().zip(key.bytes()).fold(sent.len() ^ key.len(), |all, (a, b)| all | usize::from(a ^ b))
    };
    let found = keys.iter().enumerate().fold(None, |found, (n, key)| if differs(key) == 0 { Some(n) } else { found });
    found.map(Some).ok_or_else(|| Fault::new(401, "a key is needed: send `Authorization: Bearer KEY`"))
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
        let with = |hosts: &[&str], origins: &[&str]| Limits {
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            origins: origins.iter().map(|origin| origin.to_string()).collect(),
            ..Limits::default()
        };
        let cases: [(&[&str], &[&str], bool, &str, Option<&str>, bool); 19] = [
            (&[], &[], true, "127.0.0.1:8080", None, true),
            (&[], &[], true, "localhost:8080", None, true),
            (&[], &[], true, "LOCALHOST.", None, true),
            (&[], &[], true, "[::1]:8080", None, true),
            // A name that a foreign page has made to mean this machine.
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
                (Ok(Passed::Preflight(response)), Some(origin)) => {
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
            key(&keys, &headers).ok().flatten()
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
        assert!(key(&keys, &HeaderMap::new()).is_err() && key(&[], &HeaderMap::new()).is_ok());
    }
}
