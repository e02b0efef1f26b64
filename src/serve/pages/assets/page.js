// Search while typing, `/` for the search, copy buttons and the theme. Pages work without it.
(() => {
  "use strict";

  const DELAY = 150;
  const THEMES = ["auto", "light", "dark"];
  const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const root = document.documentElement;

  // Storage may be blocked.
  const storedTheme = () => {
    try {
      return localStorage.getItem("theme") ?? "auto";
    } catch {
      return "auto";
    }
  };

  const applyTheme = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };

  const offerThemes = () => {
    const button = document.getElementById("theme");
    const show = (theme) => { button.textContent = `Theme: ${theme}`; };
    show(storedTheme());
    button.hidden = false;
    button.addEventListener("click", () => {
      const theme = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
      applyTheme(theme);
      show(theme);
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // The choice holds for this page.
      }
    });
  };

  const offerCopies = () => {
    if (!navigator.clipboard) return;
    for (const button of document.querySelectorAll("button.copy")) {
      const source = document.getElementById(button.dataset.copy);
      if (!source) continue;
      const label = [...button.childNodes];
      let timer;
      button.hidden = false;
      button.setAttribute("aria-live", "polite");
      button.addEventListener("click", async () => {
        clearTimeout(timer);
        try {
          await navigator.clipboard.writeText(source.textContent);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Not copied";
        }
        timer = setTimeout(() => button.replaceChildren(...label), 2000);
      });
    }
  };

  const isEditable = (element) => element.closest("input, select, textarea, [contenteditable]") !== null;

  const bindKeys = (input) => {
    document.addEventListener("keydown", (event) => {
      const isPlain = !event.ctrlKey && !event.altKey && !event.metaKey;
      if (event.key === "/" && isPlain && !isEditable(event.target)) {
        event.preventDefault();
        input.focus();
        input.select();
      }
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && input.value) {
        event.preventDefault();
        input.value = "";
        input.dispatchEvent(new Event("input"));
      }
    });
  };

  const relative = (time) => {
    const seconds = Math.round((Date.parse(time) - Date.now()) / 1000);
    const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ["second", 1];
    return new Intl.RelativeTimeFormat("en", { numeric: "always" }).format(Math.trunc(seconds / length), unit);
  };

  // Control characters, and those that reorder text.
  const clean = (text) => text.replace(/\p{Cc}/gu, " ").replace(/\p{Cf}/gu, "");
  const plainName = (name) => clean(name.replaceAll("%2F", "/"));

  const path = (parts) => parts.map(encodeURIComponent).join("/");

  const fillCard = (template, prefix, chart) => {
    const card = template.content.firstElementChild.cloneNode(true);
    const part = (name) => card.querySelector(`[data-part=${name}]`);
    const name = plainName(chart.name);
    const repository = path([chart.namespace, chart.repository]);
    const place = `charts/${repository}/${encodeURIComponent(chart.name.replaceAll("%2F", "/"))}`;
    part("link").textContent = name;
    part("link").href = `${prefix}/${place}`;
    part("version").textContent = clean(chart.version);
    part("description").textContent = clean(chart.description);
    part("repository").textContent = clean(`${chart.namespace}/${chart.repository}`);
    part("repository").href = `${prefix}/repositories/${repository}`;
    if (chart.appVersion) part("app").textContent = `app ${clean(chart.appVersion)}`;
    else part("app").remove();
    if (!chart.fuzzy) part("similar").remove();
    if (chart.created) {
      part("created").dateTime = chart.created;
      part("created").title = chart.created;
      part("created").textContent = relative(chart.created);
    } else {
      part("created").remove();
    }
    if (chart.hasIcon) {
      const icon = new Image(40, 40);
      icon.alt = "";
      icon.loading = "lazy";
      icon.src = `${prefix}/api/v1/${place}/icon`;
      part("icon").replaceChildren(icon);
    } else {
      const letter = name.slice(name.lastIndexOf("/") + 1).match(/[\p{L}\p{N}]/u)?.[0] ?? "?";
      part("icon").textContent = letter.toUpperCase();
    }
    return card;
  };

  // Returns the fields of the form as the page has them, and as the API has them: without empty ones, and with the namespace
  // and the name of a repository apart.
  const fieldsOf = (form) => {
    const page = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (value.trim() !== "") page.set(name, value);
    }
    const api = new URLSearchParams(page);
    const repository = page.get("repository") ?? "";
    const slash = repository.indexOf("/");
    if (slash >= 0) {
      api.set("namespace", repository.slice(0, slash));
      api.set("repository", repository.slice(slash + 1));
    }
    return { page, api };
  };

  const searchWhileTyping = (form, input, results) => {
    const template = document.getElementById("card");
    const [count, cards, none, next] = ["count", "cards", "none", "next"].map((id) => document.getElementById(id));
    const { prefix, limit } = results.dataset;
    let timer;
    let running;

    const show = (list, page) => {
      const amount = list.items.length;
      count.textContent = list.next ? `More than ${amount} charts` : `${amount} chart${amount === 1 ? "" : "s"}`;
      cards.replaceChildren(...list.items.map((chart) => fillCard(template, prefix, chart)));
      none.hidden = amount > 0;
      none.firstElementChild.textContent = "No chart matches. Use fewer or other words, or other filters.";
      document.getElementById("first")?.remove();
      next.hidden = !list.next;
      if (list.next) next.href = `${prefix}/?${new URLSearchParams([...page, ["cursor", list.next]])}`;
    };

    const search = async () => {
      running?.abort();
      running = new AbortController();
      const { page, api } = fieldsOf(form);
      api.set("limit", limit);
      try {
        const response = await fetch(`${prefix}/api/v1/charts?${api}`, { signal: running.signal, credentials: "same-origin" });
        // The sign-in has ended: the page leads to the form.
        if (response.status === 401) return form.requestSubmit();
        if (!response.ok) throw new Error(`status ${response.status}`);
        show(await response.json(), page);
        history.replaceState(null, "", `${prefix}/${page.size ? `?${page}` : ""}`);
      } catch (error) {
        if (error.name !== "AbortError") count.textContent = "The search failed. Press Enter to try again.";
      }
    };

    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(search, DELAY);
    });
    document.addEventListener("change", (event) => {
      if (event.target.form === form && event.target !== input) search();
    });
    form.addEventListener("submit", () => {
      clearTimeout(timer);
      running?.abort();
    });
  };

  applyTheme(storedTheme());
  document.addEventListener("DOMContentLoaded", () => {
    const form = document.getElementById("search");
    const results = document.getElementById("results");
    offerThemes();
    offerCopies();
    bindKeys(form.elements.q);
    if (results) searchWhileTyping(form, form.elements.q, results);
  });
})();
