//! Events of the DevTools protocol: requests, their weight, and dialogs.

use std::collections::BTreeSet;

use serde_json::Value;

/// Requests that never leave the browser.
const LOCAL: [&str; 4] = ["about:", "blob:", "chrome:", "data:"];

/// Events in their order.
pub(super) struct Events(Vec<(String, Value)>);

impl Events {
    /// Parses entries of the log `performance`.
    pub(super) fn parse<'a>(messages: impl Iterator<Item = &'a str>) -> Self {
        let events = messages.map(|message| {
            let mut entry: Value = serde_json::from_str(message).unwrap();
            let event = entry["message"].take();
            (event["method"].as_str().unwrap().to_owned(), event["params"].clone())
        });
        Self(events.collect())
    }

    fn of(&self, method: &str) -> impl Iterator<Item = &Value> {
        let events = self.0.iter();
        events
            .filter(move |(found, _)| found == method)
            .map(|(_, parameters)| parameters)
    }

    /// Returns the number of dialogs that scripts opened.
    pub(super) fn dialogs(&self) -> usize {
        self.of("Page.javascriptDialogOpening").count()
    }

    /// Returns the URLs of requests, except those that a policy blocked.
    pub(super) fn requests(&self) -> Vec<&str> {
        let failed = self.of("Network.loadingFailed");
        let blocked: BTreeSet<&str> = failed
            .filter(|failure| failure.get("blockedReason").is_some())
            .map(|failure| failure["requestId"].as_str().unwrap())
            .collect();
        self.of("Network.requestWillBeSent")
            .filter(|request| !blocked.contains(request["requestId"].as_str().unwrap()))
            .map(|request| request["request"]["url"].as_str().unwrap())
            .filter(|url| !LOCAL.iter().any(|local| url.starts_with(local)))
            .collect()
    }

    /// Returns the bytes on the wire, headers included, of all but images and the icon of the window.
    pub(super) fn weight_without_images(&self) -> u64 {
        let responses = self.of("Network.responseReceived");
        let counted: BTreeSet<&str> = responses
            .filter(|response| response["type"] != "Image" && response["type"] != "Other")
            .map(|response| response["requestId"].as_str().unwrap())
            .collect();
        self.of("Network.loadingFinished")
            .filter(|finished| counted.contains(finished["requestId"].as_str().unwrap()))
            .map(|finished| finished["encodedDataLength"].as_f64().unwrap() as u64)
            .sum()
    }
}
