//! Errors: problem details (RFC 9457). `pages` shows them to browsers as pages.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::serve::access::AccessError;
use crate::serve::cluster::ReadError;
use crate::serve::live::Unavailable;
use crate::serve::rows::RowError;
use crate::text::sanitize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    pub(super) title: &'static str,
    status: u16,
    /// Says what failed, and what to do.
    pub(super) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
    /// In seconds.
    #[serde(skip)]
    pub(super) retry_after: Option<u64>,
    /// The caller sees a namespace only if the request names it.
    #[serde(skip)]
    pub(super) needs_namespace: bool,
}

/// Status, type and title of each problem.
type Kind = (StatusCode, &'static str, &'static str);

const PARAMETER: Kind = (StatusCode::BAD_REQUEST, "/problems/parameter", "Invalid parameter");
const UNAUTHENTICATED: Kind = (
    StatusCode::UNAUTHORIZED,
    "/problems/unauthenticated",
    "Authentication required",
);
const FORBIDDEN: Kind = (StatusCode::FORBIDDEN, "/problems/forbidden", "Access denied");
const CLUSTER: Kind = (
    StatusCode::FORBIDDEN,
    "/problems/forbidden-by-cluster",
    "Access denied by the API server",
);
const NOT_FOUND: Kind = (StatusCode::NOT_FOUND, "/problems/not-found", "Not found");
const METHOD: Kind = (StatusCode::METHOD_NOT_ALLOWED, "/problems/method", "Method not allowed");
const NOT_ACCEPTABLE: Kind = (
    StatusCode::NOT_ACCEPTABLE,
    "/problems/not-acceptable",
    "No acceptable format",
);
const UNREADABLE: Kind = (
    StatusCode::UNPROCESSABLE_ENTITY,
    "/problems/unreadable",
    "File not readable",
);
const BODY_TOO_LARGE: Kind = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "/problems/body-too-large",
    "Body too large",
);
const MEDIA_TYPE: Kind = (
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    "/problems/media-type",
    "Unsupported media type",
);
const BODY: Kind = (StatusCode::UNPROCESSABLE_ENTITY, "/problems/body", "Invalid body");
const FORM: Kind = (StatusCode::FORBIDDEN, "/problems/form", "Form refused");
const URI_TOO_LONG: Kind = (StatusCode::URI_TOO_LONG, "/problems/uri-too-long", "URI too long");
const MISDIRECTED: Kind = (StatusCode::MISDIRECTED_REQUEST, "/problems/misdirected", "Unknown host");
const TOO_MANY: Kind = (
    StatusCode::TOO_MANY_REQUESTS,
    "/problems/too-many-requests",
    "Too many requests",
);
const UNAVAILABLE: Kind = (
    StatusCode::SERVICE_UNAVAILABLE,
    "/problems/unavailable",
    "Temporarily unavailable",
);
const BAD_GATEWAY: Kind = (StatusCode::BAD_GATEWAY, "/problems/bad-gateway", "Source not usable");
const INSUFFICIENT_STORAGE: Kind = (
    StatusCode::INSUFFICIENT_STORAGE,
    "/problems/insufficient-storage",
    "Content too large",
);
const INTERNAL: Kind = (
    StatusCode::INTERNAL_SERVER_ERROR,
    "/problems/internal",
    "Internal error",
);

impl Problem {
    fn new((status, kind, title): Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            title,
            status: status.as_u16(),
            // It may repeat names of the path, which are the client's choice.
            detail: sanitize(&detail.into()),
            parameter: None,
            retry_after: None,
            needs_namespace: false,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    /// An invalid value of a parameter.
    pub(super) fn parameter(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            parameter: Some(name),
            ..Self::new(PARAMETER, detail)
        }
    }

    /// A query that is invalid as a whole.
    pub(super) fn query(detail: impl Into<String>) -> Self {
        Self::new(PARAMETER, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(NOT_FOUND, detail)
    }

    pub(super) fn unknown_path() -> Self {
        Self::not_found("no resource has this path; see /api/v1/openapi.json")
    }

    pub(super) fn method() -> Self {
        Self::new(METHOD, "this path has other methods; see /api/v1/openapi.json")
    }

    pub(super) fn not_acceptable(offered: &[&str]) -> Self {
        let offered = offered.join(" or ");
        Self::new(
            NOT_ACCEPTABLE,
            format!("the Accept header excludes what this resource offers; accept {offered}"),
        )
    }

    /// A file of a chart that can't be shown in this form.
    pub(super) fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(UNREADABLE, detail)
    }

    pub(super) fn uri_too_long(limit: usize) -> Self {
        Self::new(
            URI_TOO_LONG,
            format!("the path and the query take more than {limit} bytes; shorten the query"),
        )
    }

    pub(super) fn body_too_large(limit: usize) -> Self {
        Self::new(BODY_TOO_LARGE, format!("the body takes more than {limit} bytes"))
    }

    pub(super) fn media_type(expected: &str) -> Self {
        Self::new(
            MEDIA_TYPE,
            format!("send the body as {expected}, and name it in Content-Type"),
        )
    }

    /// A body that is complete, but not valid.
    pub(super) fn body(detail: impl Into<String>) -> Self {
        Self::new(BODY, detail)
    }

    pub(super) fn too_many(retry_after: u64) -> Self {
        let detail = format!("too many requests of this caller; retry in {retry_after} s");
        Self::new(TOO_MANY, detail).retry_after(retry_after)
    }

    pub(super) fn busy(detail: &'static str) -> Self {
        Self::new(UNAVAILABLE, detail).retry_after(1)
    }

    pub(super) fn late() -> Self {
        Self::new(UNAVAILABLE, "no response in time; retry later").retry_after(5)
    }

    pub(super) fn unavailable(detail: impl Into<String>, retry_after: u64) -> Self {
        Self::new(UNAVAILABLE, detail).retry_after(retry_after)
    }

    /// A request that the configuration allows no caller.
    pub(super) fn refused(detail: impl Into<String>) -> Self {
        Self::new(FORBIDDEN, detail)
    }

    /// A form that no page of ours sent, or not safely.
    pub(super) fn form(detail: impl Into<String>) -> Self {
        Self::new(FORM, detail)
    }

    /// A version, or a file of it, is not there or not readable.
    pub(super) fn is_of_files(&self) -> bool {
        [NOT_FOUND.1, UNREADABLE.1].contains(&self.kind)
    }

    pub(super) fn is_of_form(&self) -> bool {
        self.kind == FORM.1
    }

    /// The API server does not allow the caller a read.
    pub(super) fn is_of_cluster(&self) -> bool {
        self.kind == CLUSTER.1
    }

    /// A failure of the server from which the content comes.
    pub(super) fn bad_gateway(detail: impl Into<String>) -> Self {
        Self::new(BAD_GATEWAY, detail)
    }

    pub(super) fn insufficient_storage(detail: impl Into<String>) -> Self {
        Self::new(INSUFFICIENT_STORAGE, detail)
    }

    pub(super) fn internal() -> Self {
        Self::new(INTERNAL, "failed to encode the response; see the log")
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        let needs_namespace = matches!(error, AccessError::Forbidden { namespace: None, .. });
        let (kind, retry_after) = match error {
            AccessError::Unauthenticated => (UNAUTHENTICATED, None),
            AccessError::Forbidden { .. } | AccessError::ForeignHost => (FORBIDDEN, None),
            AccessError::Unavailable { retry_after } => (UNAVAILABLE, Some(retry_after)),
            AccessError::TooMany { retry_after } => (TOO_MANY, Some(retry_after)),
            AccessError::Misdirected => (MISDIRECTED, None),
        };
        Self {
            retry_after,
            needs_namespace,
            ..Self::new(kind, error.to_string())
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::Refused { status, .. } if status == StatusCode::UNAUTHORIZED => {
                AccessError::Unauthenticated.into()
            }
            ReadError::Refused { status, .. } if status == StatusCode::FORBIDDEN => Self::new(CLUSTER, detail),
            ReadError::Refused { status, .. } if status == StatusCode::NOT_FOUND => Self::not_found(detail),
            ReadError::Refused { .. } | ReadError::Unreadable => Self::bad_gateway(detail),
            ReadError::TooLarge => Self::insufficient_storage(detail),
            ReadError::Unavailable => Self::unavailable(format!("{detail}; retry later"), 5),
        }
    }
}

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        Self::new(UNAVAILABLE, format!("{error}; retry later")).retry_after(5)
    }
}

impl From<RowError> for Problem {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Busy => Self::new(UNAVAILABLE, format!("{error}; retry later")).retry_after(1),
            RowError::Unavailable(error) => error.into(),
            RowError::Panicked => Self::internal(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // A structure of texts and numbers is always JSON.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let status = self.status();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}
