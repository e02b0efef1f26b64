//! Sign-in with a token, which a cookie of the browser holds until it expires, and sign-out.
//!
//! ```text
//!  form ─► origin ─► limit of sign-ins ─► review of the token ─┬─► cookie, next page
//!                                                              └─► form with the reason
//! ```

mod next;
mod refusal;

use askama::Template;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use url::form_urlencoded;

use next::path_after_sign_in;
use refusal::Refusal;

use super::shown::When;
use super::{Frame, PageError, page};
use crate::serve::access::{AccessError, OriginError, Session, check_origin};
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::text::printable;

const MAX_BODY: usize = 16 * 1024;
/// The parameter of the page that follows a sign-out.
const SIGNED_OUT: &str = "signed-out";

pub(super) fn routes() -> Router<Site> {
    Router::new()
        .route("/login", get(show).post(sign_in))
        .route("/logout", post(sign_out))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

#[derive(Template)]
#[template(path = "login.html", config = "src/serve/pages/askama.toml")]
struct LoginPage {
    frame: Frame,
    view: View,
    next: String,
    notice: Option<&'static str>,
    /// The reason for which a sign-in was refused.
    refused: Option<String>,
}

enum View {
    /// There is no API server that knows tokens.
    NotNeeded,
    Form,
    /// Without an expiry for a caller whose token a proxy sends.
    SignedIn {
        user: String,
        expires: Option<When>,
    },
}

impl LoginPage {
    fn new(site: &Site, next: String) -> Self {
        let view = if site.has_sign_in() {
            View::Form
        } else {
            View::NotNeeded
        };
        Self {
            frame: Frame::without_visit(site, "login"),
            view,
            next,
            notice: None,
            refused: None,
        }
    }

    fn signed_in(mut self, user: &str, session: Option<&Session>) -> Self {
        let user = printable(user);
        self.frame.user = Some(user.clone());
        self.frame.can_sign_out = session.is_some();
        let expires = session.map(|session| When::new(session.expires, Timestamp::now()));
        self.view = View::SignedIn { user, expires };
        self
    }

    fn notice(self, notice: &'static str) -> Self {
        Self {
            notice: Some(notice),
            ..self
        }
    }

    fn refused(self, reason: String) -> Self {
        Self {
            refused: Some(reason),
            ..self
        }
    }

    /// Without the headers of the request: the page is never one that the browser has.
    fn respond(&self, site: &Site, status: StatusCode) -> Result<Response, PageError> {
        let mut response = page(site, &HeaderMap::new(), self)?;
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.remove(header::ETAG);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

/// The fields of a query or of a form.
struct Fields(Vec<(String, String)>);

impl Fields {
    fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        fields.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    fn next(&self, site: &Site) -> Result<String, Problem> {
        path_after_sign_in(self.get("next"), format!("{}/", site.prefix()))
    }
}

async fn show(State(site): State<Site>, headers: HeaderMap, RawQuery(query): RawQuery) -> Result<Response, PageError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let login = LoginPage::new(&site, fields.next(&site)?);
    let session = site.sessions().in_use(&headers);
    let login = match site.owner(&headers).await {
        Ok(Some(user)) => login.signed_in(&user, session.as_ref()),
        Ok(None) if fields.get(SIGNED_OUT).is_some() => {
            login.notice("You are signed out on this browser. Your token stays valid until it expires.")
        }
        Ok(None) if fields.get("next").is_some() && site.has_sign_in() => {
            login.notice("Sign in to continue. A session ends when its token expires, and after 12 hours.")
        }
        Ok(None) => login,
        Err(AccessError::Unauthenticated) if session.is_some() => {
            login.notice("Your session has ended: the API server no longer accepts its token.")
        }
        Err(AccessError::Unauthenticated) => {
            login.notice("The API server does not accept the credentials that your browser or a proxy sends.")
        }
        Err(AccessError::Unavailable { .. } | AccessError::TooMany { .. }) => {
            login.notice("The API server does not review tokens at the moment. Try again in a few seconds.")
        }
        Err(error) => return Err(Problem::from(error).into()),
    };
    login.respond(&site, StatusCode::OK)
}

async fn sign_in(
    State(site): State<Site>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, PageError> {
    let connection = check_origin(&headers, site.external_origin()).map_err(refuse)?;
    let fields = Fields::parse(&body.map_err(|error| refuse_body(&error))?);
    let next = fields.next(&site)?;
    if !site.has_sign_in() {
        return LoginPage::new(&site, next).respond(&site, StatusCode::OK);
    }
    match begin(&site, &headers, fields.get("token").unwrap_or_default()).await {
        Ok(session) => Ok(redirect(&next, site.sessions().set(&session, connection))),
        Err(refusal) => show_again(&site, next, refusal),
    }
}

/// Begins a session with a token that the API server accepts.
async fn begin(site: &Site, headers: &HeaderMap, entered: &str) -> Result<Session, Refusal> {
    let session = Session::begin(entered)?;
    site.limiter().check_sign_in().map_err(Refusal::too_many)?;
    let owner = site.owner(&session.authorize(headers)).await?;
    owner.ok_or(AccessError::Unauthenticated)?;
    Ok(session)
}

fn show_again(site: &Site, next: String, refusal: Refusal) -> Result<Response, PageError> {
    let Refusal {
        status,
        reason,
        retry_after,
    } = refusal;
    let mut response = LoginPage::new(site, next).refused(reason).respond(site, status)?;
    let headers = response.headers_mut();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Ok(response)
}

async fn sign_out(State(site): State<Site>, headers: HeaderMap) -> Result<Response, PageError> {
    check_origin(&headers, site.external_origin()).map_err(refuse)?;
    let login = format!("{}/login?{SIGNED_OUT}", site.prefix());
    Ok(redirect(&login, site.sessions().clear()))
}

/// Redirects a form to a page, which the browser gets by GET.
fn redirect(path: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    let mut response = Redirect::to(path).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

fn refuse(error: OriginError) -> Problem {
    Problem::form(error.to_string())
}

fn refuse_body(error: &BytesRejection) -> Problem {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::body_too_large(MAX_BODY)
    } else {
        Problem::query("failed to read the form; send it again")
    }
}
