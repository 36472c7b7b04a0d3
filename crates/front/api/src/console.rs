//! Files of the web console, embedded at build time.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};

/// One file of the console.
struct File {
    /// Path from `/` on.
    path: &'static str,
    /// Content.
    bytes: &'static [u8],
    /// Content compressed with gzip; empty if that is not smaller.
    gzip: &'static [u8],
    /// Entity tag of the content.
    tag: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// Page of a build without the console.
const NONE: &str = "<!doctype html><html lang=\"en\"><meta \
     charset=\"utf-8\"><title>Blockyard</title><h1>Blockyard</h1><p>This build contains no console. Use the \
     command line: <code>blockyard status</code>.</p></html>";

/// Answers a request for the console; `None` if it belongs to the API.
///
/// A path that is not a file is a route inside the console if the client asks for a page.
pub(crate) fn answer(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response<Body>> {
    let path = uri.path();
    // Unknown paths below `/api/` are answered by a problem document, not by a page.
    if !matches!(*method, Method::GET | Method::HEAD) || path.starts_with("/api/") {
        return None;
    }
    // The page is served at the routes of the console, not under its file name.
    let file = FILES.iter().find(|file| file.path == path && path != "/index.html");
    let file = match file {
        Some(file) => file,
        None if !wants_page(headers) => return None,
        None => match FILES.iter().find(|file| file.path == "/index.html") {
            Some(index) => index,
            None => return Some(page(NONE)),
        },
    };
    Some(send(file, method, headers))
}

fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    // Parameters of a media type, such as `q`, are ignored.
    accept.split(',').any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/html"))
}

fn page(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn send(file: &File, method: &Method, headers: &HeaderMap) -> Response<Body> {
    let says = |name, wanted: &str| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or("");
        value.split(',').any(|one| {
            // A weight of zero means not acceptable (RFC 9110 §12.4.2).
            let mut parts = one.split(';').map(str::trim);
            parts.next() == Some(wanted) && !parts.any(|part| part == "q=0")
        })
    };
    let hashed = file.path.starts_with("/assets/");
    let fixed = HeaderValue::from_static;
    let mut response = Response::new(Body::empty());
    let said = response.headers_mut();
    // Before the answer 304 is chosen, which has these headers as well (RFC 9110 §15.4.5).
    said.insert(header::ETAG, fixed(file.tag));
    // Caches must keep both encodings apart.
    said.insert(header::VARY, fixed("Accept-Encoding"));
    // Such names contain a hash of the content and never stand for other content.
    let kept = if hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    said.insert(header::CACHE_CONTROL, fixed(kept));
    said.insert(header::CONTENT_TYPE, fixed(kind(file.path)));
    if says(header::IF_NONE_MATCH, file.tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let packed = !file.gzip.is_empty() && says(header::ACCEPT_ENCODING, "gzip");
    if packed {
        said.insert(header::CONTENT_ENCODING, fixed("gzip"));
    }
    let bytes = if packed { file.gzip } else { file.bytes };
    // HEAD has the headers of GET.
    said.insert(header::CONTENT_LENGTH, bytes.len().into());
    if *method == Method::GET {
        *response.body_mut() = Body::from(bytes);
    }
    response
}

/// Media type of a file by its extension.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "webmanifest" => "application/json",
        "woff2" => "font/woff2",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File { path: "/assets/main-a1b2.js", bytes: b"let a = 1;", gzip: b"packed", tag: "\"abc\"" };

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value))).collect()
    }

    fn said(response: &Response<Body>, name: &str) -> String {
        response.headers().get(name).map_or("", |value| value.to_str().expect("text")).to_owned()
    }

    #[test]
    fn file_with_a_hash_in_its_name_is_kept_for_ever_and_others_are_asked_for_again() {
        let sent = send(&FILE, &Method::GET, &headers(&[]));
        assert!(said(&sent, "cache-control").contains("immutable"));
        assert_eq!(said(&sent, "content-type"), "text/javascript; charset=utf-8");
        let index = File { path: "/index.html", ..FILE };
        assert_eq!(said(&send(&index, &Method::GET, &headers(&[])), "cache-control"), "no-cache");
        let again = send(&index, &Method::GET, &headers(&[("if-none-match", "\"abc\"")]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn file_is_sent_compressed_to_who_takes_that() {
        for (accept, length, encoding) in [("br, gzip", "6", "gzip"), ("gzip;q=0", "10", ""), ("br", "10", "")] {
            let sent = send(&FILE, &Method::HEAD, &headers(&[("accept-encoding", accept)]));
            assert_eq!(
                (said(&sent, "content-length"), said(&sent, "content-encoding")),
                (length.into(), encoding.into())
            );
        }
    }

    #[test]
    fn places_in_the_console_are_its_page_and_the_api_is_not() {
        let html = headers(&[("accept", "text/html,application/xhtml+xml")]);
        let deep = answer(&Method::GET, &Uri::from_static("/pools/tank"), &html).expect("a page");
        assert_eq!(said(&deep, "content-type"), "text/html; charset=utf-8");
        assert!(answer(&Method::GET, &Uri::from_static("/api/v1/pools"), &html).is_none());
        assert!(answer(&Method::POST, &Uri::from_static("/pools/tank"), &html).is_none());
        assert!(answer(&Method::GET, &Uri::from_static("/assets/gone.js"), &headers(&[])).is_none());
    }
}
