"use strict";
// What moves on the console's pages: results as they are found, charts, forms that are checked while they are filled in.
(() => {
  const token = document.body.dataset.token;
  const each = (root, selector, work) => root.querySelectorAll(selector).forEach(work);
  const count = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
  // A region that renews itself: what is open stays open, what is marked stays marked, and it is said when it is not renewed.
  document.addEventListener("htmx:beforeRequest", (e) => {
    const marked = getSelection();
    if (e.target.id === "live" && !marked.isCollapsed && e.target.contains(marked.anchorNode)) { e.preventDefault(); }
  });
  let opened = [];
  document.addEventListener("htmx:beforeSwap", (e) => { opened = [...e.target.querySelectorAll("details[id]")].map((d) => [d.id, d.open]); });
  document.addEventListener("htmx:afterSwap", () => {
    opened.forEach(([id, open]) => { const d = document.getElementById(id); if (d) { d.open = open; } });
    opened = [];
  });
  function stale(e) {
    const region = e.detail.target || e.target, said = document.createElement("template");
    if (!region || !region.id) { return; }
    said.innerHTML = e.detail.xhr && e.detail.xhr.responseText || "";
    each(region, ".stale", (p) => p.remove());
    const p = document.createElement("p");
    p.className = "wrong stale"; p.setAttribute("role", "alert");
    p.textContent = "This is not renewed: " + (said.content.textContent.trim() || "the console does not answer");
    region.prepend(p);
  }
  document.addEventListener("htmx:responseError", stale);
  document.addEventListener("htmx:sendError", stale);
  document.addEventListener("htmx:configRequest", (e) => { e.detail.headers["X-CSRF-Token"] = token; });

  function results(box) {
    const body = box.querySelector("tbody"), said = box.querySelector(".progress"), bar = box.querySelector("progress");
    const stop = box.querySelector(".stop"), again = box.querySelector(".again"), on = box.querySelector(".on"), tail = box.dataset.tail === "1";
    let shown = 0;
    const source = new EventSource(box.dataset.stream);
    const end = (text) => { source.close(); stop.hidden = true; bar.hidden = true; again.hidden = false; said.textContent = text; };
    if (tail) { bar.hidden = true; said.textContent = "Waiting for new records …"; }
    source.addEventListener("rows", (e) => {
      const found = JSON.parse(e.data);
      shown += found.count;
      body.insertAdjacentHTML(tail ? "afterbegin" : "beforeend", found.html);
      if (tail) { while (body.rows.length > 500) { body.deleteRow(-1); } }
    });
    source.addEventListener("progress", (e) => {
      const p = JSON.parse(e.data);
      if (tail) { said.textContent = count(shown, "record") + " since the tail began" + (p.left_out ? ", " + p.left_out + " more were too many to show" : ""); return; }
      bar.max = Math.max(p.total, 1); bar.value = p.passed;
      said.textContent = count(shown, "match").replace("matchs", "matches") + ", " + count(p.read, "record") + " read";
    });
    source.addEventListener("done", (e) => {
      const d = JSON.parse(e.data);
      end((shown ? count(shown, "record") : "No record matches") + "; " + count(d.read, "record") + " read in " + d.seconds + " s" + (d.more ? (d.on ? "; there may be more" : "; there may be more: ask for more, or for fewer partitions") : ""));
      if (d.on) {
        const query = new URLSearchParams(location.search);
        query.set("on", d.on);
        on.href = location.pathname + "?" + query;
        on.hidden = false;
      }
    });
    source.addEventListener("failed", (e) => { end(JSON.parse(e.data).said); said.classList.add("wrong"); });
    source.onerror = () => { end("The search ended: the console does not answer, or too many searches are running."); said.classList.add("wrong"); };
    stop.addEventListener("click", () => end("Stopped after " + count(shown, "record") + "."));
    addEventListener("pagehide", () => source.close());
  }

  const colours = ["#1f8a70", "#c9662c", "#4f6bd6", "#b23a8e", "#8a7a1f", "#2c93b8", "#8452c4", "#b23a3a"];
  const from0 = (u, low, high) => [0, Math.max(1, high * 1.05)];
  function chart(box) {
    let plot = null;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    async function draw() {
      let found;
      try { found = await (await fetch(box.dataset.chart, {headers: {"Accept": "application/json"}})).json(); } catch (e) { return; }
      const data = [found.times, ...found.lines.map((l) => l.values), ...(found.ages ? [found.ages] : [])];
      if (plot && plot.series.length === data.length) { plot.setData(data); return; }
      if (plot) { plot.destroy(); }
      const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}};
      // As everywhere here: UTC, and 24 hours
      const day = {fmtDate: (template) => uPlot.fmtDate(template.replace("{h}{aa}", "{HH}:00").replace("{h}", "{HH}").replace("{aa}", "").replace("{M}/{D}/{YY}", "{YYYY}-{MM}-{DD}").replace("{M}/{D}", "{MM}-{DD}")), tzDate: (s) => uPlot.tzDate(new Date(s * 1e3), "Etc/UTC")};
      plot = new uPlot({
        ...day,
        width: box.clientWidth - 16, height: 240, scales: {x: {range: (u, low, high) => [Math.min(low, high - 300), high]}, y: {range: from0}, age: {range: from0}},
        axes: [axis, {...axis, size: 70, label: "records"}, ...(found.ages ? [{...axis, scale: "age", side: 1, size: 60, label: "seconds", grid: {show: false}}] : [])],
        series: [{}, ...found.lines.map((l, i) => ({label: l.name, stroke: colours[i % colours.length], width: 2})),
          ...(found.ages ? [{label: "age of the next record, s", scale: "age", stroke: ink, width: 1, dash: [4, 4]}] : [])],
      }, data, box);
    }
    addEventListener("resize", () => plot && plot.setSize({width: box.clientWidth - 16, height: 240}));
    draw();
    setInterval(() => { if (!document.hidden) { draw(); } }, 5000);
  }

  function live(form) {
    // A list that follows its search field; without this script, the button does it.
    let timer = 0;
    form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const fields = new URLSearchParams();
        new FormData(form).forEach((value, name) => { if (value) { fields.append(name, value); } });
        const url = location.pathname + (fields.size ? "?" + fields : "");
        const target = form.dataset.live;
        await htmx.ajax("GET", url, {target: target, select: target, swap: "outerHTML"});
        history.replaceState(null, "", url);
      }, 250);
    });
  }

  function connector(form) {
    const source = form.elements.source;
    let asked = 0;
    const values = () => new Map([...form.elements].filter((e) => e.name && e.type !== "hidden").map((e) => [e.name, e.value]));
    function failed(target, said) {
      const old = target.querySelector(".unanswered"), p = document.createElement("p");
      p.className = "wrong unanswered"; p.setAttribute("role", "alert"); p.textContent = said;
      if (old) { old.remove(); }
      target.prepend(p);
    }
    async function send(url, target) {
      // Returns the answer; tells why there is none, and leaves everything as it is.
      try {
        const answer = await fetch(url, {method: "POST", body: new URLSearchParams(new FormData(form)), headers: {"X-CSRF-Token": token, "HX-Request": "true"}});
        const text = await answer.text();
        if (answer.ok) { return text; }
        const said = document.createElement("template");
        said.innerHTML = text;
        failed(target, answer.headers.get("HX-Redirect") ? "Your login has ended. Copy the JSON, log in again, and paste it" : said.content.textContent.trim());
      } catch (e) { failed(target, "The console does not answer."); }
      return null;
    }
    async function check() {
      const mine = ++asked, before = values(), fields = document.querySelector("#fields");
      const text = await send(form.dataset.form, fields);
      if (text === null || mine !== asked) { return; } // a later one is on its way
      const active = document.activeElement, id = active && active.id, name = active && active.name, now = values();
      const caret = active && active.type !== "password" && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
      const open = [...form.querySelectorAll("details.group[open] > summary")].map((s) => s.firstChild.textContent);
      fields.innerHTML = text;
      each(form, "details.group", (d) => { if (open.includes(d.firstElementChild.firstChild.textContent)) { d.open = true; } });
      source.value = "fields";
      const again = form.elements[name] || (id && document.getElementById(id));
      if (!again || !again.focus) { return; }
      if (now.has(name) && now.get(name) !== before.get(name)) {
        // What was typed meanwhile stays, and is checked when it is left
        again.value = now.get(name);
        again.addEventListener("focusout", () => { source.value = again.dataset.json === undefined ? "fields" : "json"; check(); }, {once: true});
      }
      again.focus();
      if (caret && again.setSelectionRange && caret[0] !== null) { again.setSelectionRange(caret[0], caret[1]); }
    }
    form.addEventListener("change", (e) => {
      if (e.target.name === "sample" || e.target.name === "new.key") { return; }
      source.value = e.target.dataset.json === undefined ? "fields" : "json";
      check();
    });
    form.querySelector("[data-check]").addEventListener("click", check);
    form.querySelector("[data-try]").addEventListener("click", async (e) => {
      const tried = document.querySelector("#tried"), text = await send(e.target.dataset.try, tried);
      if (text !== null) { tried.innerHTML = text; }
    });
  }

  each(document, "[data-shows]", (select) => {
    // Fields that belong to the choice "schema" are there only with it.
    const part = document.getElementById(select.dataset.shows);
    if (!part) { return; }
    const show = () => { part.hidden = select.value !== "schema"; };
    select.addEventListener("change", show);
    show();
  });
  each(document, "[data-stream]", results);
  each(document, "form[data-live]", live);
  each(document, "form[data-form]", connector);
  each(document, "[data-equals]", (input) => {
    const check = () => input.setCustomValidity(input.value === input.dataset.equals ? "" : "Type " + input.dataset.equals);
    input.addEventListener("input", check);
    check();
  });
  if (typeof uPlot !== "undefined") { each(document, "[data-chart]", chart); }
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) {
      const field = document.querySelector("input[type=search]");
      if (field) { e.preventDefault(); field.focus(); }
    }
  });
})();
