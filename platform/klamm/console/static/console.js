"use strict";
// What moves on the console's pages: results as they are found, charts, forms that are checked while they are filled in.
(() => {
  const token = document.body.dataset.token;
  const each = (root, selector, work) => root.querySelectorAll(selector).forEach(work);
  const count = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
  document.addEventListener("htmx:configRequest", (e) => { e.detail.headers["X-CSRF-Token"] = token; });

  function results(box) {
    const body = box.querySelector("tbody"), said = box.querySelector(".progress"), bar = box.querySelector("progress");
    const stop = box.querySelector(".stop"), again = box.querySelector(".again"), tail = box.dataset.tail === "1";
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
      end((shown ? count(shown, "record") : "No record matches") + "; " + count(d.read, "record") + " read in " + d.seconds + " s" + (d.more ? "; there may be more: ask for more, or go on from the last one" : ""));
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
    async function send(url, target) {
      const answer = await fetch(url, {method: "POST", body: new URLSearchParams(new FormData(form)), headers: {"X-CSRF-Token": token, "HX-Request": "true"}});
      document.querySelector(target).innerHTML = await answer.text();
    }
    async function check() {
      const active = document.activeElement, id = active && active.id;
      const open = [...form.querySelectorAll("details.group[open] > summary")].map((s) => s.firstChild.textContent);
      await send(form.dataset.form, "#fields");
      each(form, "details.group", (d) => { if (open.includes(d.firstElementChild.firstChild.textContent)) { d.open = true; } });
      source.value = "fields";
      const again = id && document.getElementById(id);
      if (again) { again.focus(); }
    }
    form.addEventListener("change", (e) => {
      if (e.target.name === "sample" || e.target.name === "new.key") { return; }
      source.value = e.target.dataset.json === undefined ? "fields" : "json";
      check();
    });
    form.querySelector("[data-check]").addEventListener("click", check);
    form.querySelector("[data-try]").addEventListener("click", (e) => send(e.target.dataset.try, "#tried"));
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
