//! The commands of WebDriver (W3C) that the tests need, as HTTP requests to ChromeDriver.
//!
//! A crate for it (thirtyfour) turns on `serde_json/preserve_order`. Cargo would then build the program under test with it too: its
//! JSON would have another order than that of a release.

use std::thread;

use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The key of the id of an element in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser of ChromeDriver, closed on drop.
pub(super) struct Session {
    client: Client,
    url: String,
    /// The process of the browser.
    pub(super) pid: u32,
}

#[derive(Deserialize)]
pub(super) struct LogEntry {
    pub(super) level: String,
    pub(super) message: String,
    #[serde(default)]
    pub(super) source: String,
}

/// Keys without a character.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Tab,
    Enter,
    Escape,
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        match key {
            Key::Tab => "\u{e004}",
            Key::Enter => "\u{e007}",
            Key::Escape => "\u{e00c}",
        }
        .to_owned()
    }
}

impl Session {
    pub(super) async fn start(client: Client, server: &str, capabilities: Value) -> Self {
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let request = client.post(format!("{server}/session")).body(body.to_string());
        let started: Value = send(request).await.unwrap();
        let pid = started["capabilities"]["goog:processID"].as_u64().unwrap();
        Self {
            client,
            url: format!("{server}/session/{}", started["sessionId"].as_str().unwrap()),
            pid: u32::try_from(pid).unwrap(),
        }
    }

    async fn post<T: DeserializeOwned>(&self, command: &str, body: Value) -> Result<T, String> {
        let request = self.client.post(format!("{}/{command}", self.url));
        send(request.body(body.to_string())).await
    }

    /// Returns the command prefix of the first element that matches.
    async fn find(&self, css: &str) -> Result<String, String> {
        let selector = json!({ "using": "css selector", "value": css });
        let found: Value = self.post("element", selector).await?;
        let id = found[ELEMENT].as_str().ok_or_else(|| found.to_string())?;
        Ok(format!("element/{id}"))
    }

    pub(super) async fn open(&self, url: &str) -> Result<(), String> {
        self.post("url", json!({ "url": url })).await
    }

    pub(super) async fn execute<T: DeserializeOwned>(&self, script: &str) -> Result<T, String> {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    pub(super) async fn click(&self, css: &str) -> Result<(), String> {
        let element = self.find(css).await?;
        self.post(&format!("{element}/click"), json!({})).await
    }

    pub(super) async fn enter(&self, css: &str, text: &str) -> Result<(), String> {
        let element = self.find(css).await?;
        self.post(&format!("{element}/value"), json!({ "text": text })).await
    }

    pub(super) async fn text(&self, css: &str) -> Result<String, String> {
        let element = self.find(css).await?;
        send(self.client.get(format!("{}/{element}/text", self.url))).await
    }

    pub(super) async fn press(&self, keys: &str) -> Result<(), String> {
        let strokes = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|stroke| json!({ "type": stroke, "value": key })));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes.collect::<Vec<Value>>() });
        self.post("actions", json!({ "actions": [keyboard] })).await
    }

    /// Sends a command of the DevTools protocol.
    pub(super) async fn devtools(&self, command: &str, parameters: Value) -> Result<Value, String> {
        let body = json!({ "cmd": command, "params": parameters });
        self.post("goog/cdp/execute", body).await
    }

    /// Returns the entries of a log since the last call.
    pub(super) async fn log(&self, name: &str) -> Result<Vec<LogEntry>, String> {
        self.post("se/log", json!({ "type": name })).await
    }
}

impl Drop for Session {
    /// The runtime of the test does not run meanwhile, so another one sends the request.
    fn drop(&mut self) {
        let (client, url) = (self.client.clone(), self.url.clone());
        let close = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(send::<Value>(client.delete(url)))
        };
        // A browser that can't be closed ends with the test process.
        let _ = thread::spawn(close).join();
    }
}

/// Returns the value of an answer, or the error of the driver.
async fn send<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, String> {
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let is_success = answer.status().is_success();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    let mut body: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    let value = body["value"].take();
    if is_success {
        serde_json::from_value(value).map_err(|error| format!("{error}: {text}"))
    } else {
        Err(format!("{}: {}", value["error"], value["message"]))
    }
}
