//! Chromium, driven through the one ChromeDriver of the test process.
//!
//! ```text
//!  test ─► permit (two at once) ─► session of ChromeDriver ─► Chromium with a profile of its own
//! ```

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::FutureExt;
use reqwest::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::events::Events;
use super::webdriver::Session;
use crate::support::control_plane::tool;
use crate::support::eventually::{SOON, eventually};
use crate::support::ports::free_port;
use crate::support::process::{Process, ScratchDir, Watched};
use crate::support::target_dir;

const START_DEADLINE: Duration = Duration::from_secs(30);
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
const FLAGS: [&str; 7] = [
    "--headless",
    // Chromium's own sandbox does not work for root.
    "--no-sandbox",
    // Requests to its vendor.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    // Containers have 64 MiB of it.
    "--disable-dev-shm-usage",
];
const HEIGHT: u32 = 900;

/// Each browser takes about 300 MB of memory.
static SESSIONS: Semaphore = Semaphore::const_new(2);

/// The driver shared by all tests, started on first use.
async fn chrome_driver() -> &'static ChromeDriver {
    static SHARED: OnceCell<Option<ChromeDriver>> = OnceCell::const_new();
    // A failed start is not repeated by every test.
    let start = async || AssertUnwindSafe(ChromeDriver::start()).catch_unwind().await.ok();
    let driver = SHARED.get_or_init(start).await.as_ref();
    driver.expect("ChromeDriver starts; see the failure of the first test that needs it")
}

struct ChromeDriver {
    url: String,
    _process: Process,
    /// Profiles of the browsers.
    _directory: ScratchDir,
}

impl ChromeDriver {
    async fn start() -> Self {
        let directory = ScratchDir::new("browser");
        let port = free_port();
        let log_path = target_dir("logs").join("chromedriver.log");
        let log = File::create(&log_path).unwrap();
        let mut command = Command::new(tool("chromedriver"));
        command
            .arg(format!("--port={port}"))
            .env("HOME", directory.path())
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let driver = Self {
            url: format!("http://127.0.0.1:{port}"),
            _process: Process::spawn(&mut command, "KILL"),
            _directory: directory,
        };
        let (client, status) = (client(), format!("{}/status", driver.url));
        let what = format!("ChromeDriver to respond (its log: {})", log_path.display());
        eventually(START_DEADLINE, &what, async || {
            let answer = client.get(&status).send().await?;
            answer.error_for_status()
        })
        .await;
        driver
    }
}

fn client() -> Client {
    portolan::http::install_crypto_provider();
    let client = Client::builder().no_proxy().tls_certs_only([]);
    // A browser is closed on drop, while the runtime does not run: a connection of that runtime would not answer.
    let client = client.pool_max_idle_per_host(0).timeout(COMMAND_DEADLINE);
    client.build().unwrap()
}

fn capabilities(preferences: &Value) -> Value {
    json!({
        "browserName": "chrome",
        "goog:chromeOptions": { "binary": tool("chromium"), "args": FLAGS, "prefs": preferences },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        // A dialog stays open and is counted.
        "unhandledPromptBehavior": "ignore",
    })
}

/// A browser at an address, with one window. Closed on drop.
pub(super) struct Browser {
    session: Session,
    origin: String,
    /// ChromeDriver leaves its browsers behind when it is killed.
    _process: Watched,
    _permit: SemaphorePermit<'static>,
}

impl Browser {
    pub(super) async fn new(origin: &str) -> Self {
        Self::start(origin, &json!({})).await
    }

    /// A browser whose user has turned scripts off. Those of the tests run.
    pub(super) async fn without_scripts(origin: &str) -> Self {
        const BLOCK: u32 = 2;
        Self::start(
            origin,
            &json!({ "profile.managed_default_content_settings.javascript": BLOCK }),
        )
        .await
    }

    async fn start(origin: &str, preferences: &Value) -> Self {
        let permit = SESSIONS.acquire().await.unwrap();
        let server = chrome_driver().await;
        let session = Session::start(client(), &server.url, capabilities(preferences)).await;
        let browser = Self {
            _process: Watched::new(session.pid),
            session,
            origin: origin.to_owned(),
            _permit: permit,
        };
        // As on phones: a bar would take 15 of 320 pixels.
        browser
            .devtools("Emulation.setScrollbarsHidden", json!({ "hidden": true }))
            .await;
        browser
    }

    /// Opens a path of the address, and waits until it is loaded.
    pub(super) async fn open(&self, path: &str) {
        self.open_url(&format!("{}{path}", self.origin)).await;
    }

    pub(super) async fn open_url(&self, url: &str) {
        let opened = self.session.open(url).await;
        opened.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Returns the path and query of the page.
    pub(super) async fn path(&self) -> String {
        self.js("return location.pathname + location.search").await
    }

    /// Returns what a script returns, or the promise that it returns.
    pub(super) async fn js<T: DeserializeOwned>(&self, script: &str) -> T {
        let returned = self.session.execute(script).await;
        returned.unwrap_or_else(|error| panic!("{}: {error}", script.chars().take(200).collect::<String>()))
    }

    /// Waits until an expression of a script is true.
    pub(super) async fn until(&self, expression: &str) {
        let script = format!("return [Boolean({expression}), location.href]");
        eventually(SOON, expression, async || {
            match self.session.execute::<(bool, String)>(&script).await {
                Ok((true, _)) => Ok(()),
                Ok((false, url)) => Err(format!("false at {url}")),
                Err(error) => Err(error),
            }
        })
        .await;
    }

    /// Returns the visible text of an element, for which it waits.
    pub(super) async fn text(&self, css: &str) -> String {
        eventually(SOON, &format!("the text of {css}"), async || {
            self.session.text(css).await
        })
        .await
    }

    /// Clicks an element once it can be clicked.
    pub(super) async fn click(&self, css: &str) {
        // Pages scroll smoothly: ChromeDriver would click before the element is in the window.
        let scroll = format!(
            "document.querySelector({})?.scrollIntoView({{ block: 'center', inline: 'center', behavior: 'instant' }})",
            Value::from(css)
        );
        eventually(SOON, &format!("a click on {css}"), async || {
            self.session.execute::<Value>(&scroll).await?;
            self.session.click(css).await
        })
        .await;
    }

    /// Types a text into an element once it accepts one.
    pub(super) async fn enter(&self, css: &str, text: &str) {
        eventually(SOON, &format!("an entry in {css}"), async || {
            self.session.enter(css, text).await
        })
        .await;
    }

    /// Presses keys, for whatever has the focus.
    pub(super) async fn press(&self, keys: impl Into<String>) {
        self.session.press(&keys.into()).await.unwrap();
    }

    /// Does what loads another page, and waits until that is loaded.
    pub(super) async fn load(&self, action: impl AsyncFnOnce()) {
        self.js::<Value>("window.isOfLastPage = true").await;
        action().await;
        self.until("!window.isOfLastPage && document.readyState === 'complete'")
            .await;
    }

    /// Sends a command of the DevTools protocol.
    pub(super) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let result = self.session.devtools(command, parameters).await;
        result.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub(super) async fn resize(&self, width: u32) {
        let size = json!({ "width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the preferred theme, `light` or `dark`.
    pub(super) async fn prefer(&self, theme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    pub(super) async fn allow_clipboard(&self) {
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        let grant = json!({ "permissions": permissions, "origin": self.origin });
        self.devtools("Browser.grantPermissions", grant).await;
    }

    pub(super) async fn clipboard(&self) -> String {
        self.js("return navigator.clipboard.readText()").await
    }

    /// Returns errors on the console since the last call: violations of the policy and exceptions of scripts. Failed requests are
    /// among the events.
    pub(super) async fn console_errors(&self) -> Vec<String> {
        let log = self.session.log("browser").await.unwrap().into_iter();
        log.filter(|entry| entry.level == "SEVERE" && entry.source != "network")
            .map(|entry| entry.message)
            .collect()
    }

    /// Returns the events of the DevTools protocol since the last call.
    pub(super) async fn events(&self) -> Events {
        let log = self.session.log("performance").await.unwrap();
        Events::parse(log.iter().map(|entry| entry.message.as_str()))
    }
}
