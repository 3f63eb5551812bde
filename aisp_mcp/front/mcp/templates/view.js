(() => {
  "use strict";
  const root = document.documentElement;
  const [main, message, button] = ["main", "message", "wait"].map((id) => document.getElementById(id));
  const sample = document.querySelector("svg"), svgNames = sample.namespaceURI;
  sample.remove();
  const tags = ["line", "rect", "circle", "text"];
  const attributes = /^(class|d?x|x[12]|y[12]?|c[xy]|r|width|height|text-anchor)$/;
  const pending = new Map();
  let requests = 0, mayCall = false, next = null, closed = false;

  const post = (body) => parent.postMessage({ jsonrpc: "2.0", ...body }, "*");
  const request = (method, params) => new Promise((resolve, reject) => {
    pending.set(++requests, { resolve, reject });
    post({ id: requests, method, params });
  });

  // Everything from outside is inserted as text, never as markup.
  const add = (parent, name, text) => {
    const element = parent.appendChild(document.createElement(name));
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const shape = (svg, [tag, values, text]) => {
    if (!tags.includes(tag)) return;
    const element = svg.appendChild(document.createElementNS(svgNames, tag));
    for (const [name, value] of Object.entries(values)) if (attributes.test(name)) element.setAttribute(name, value);
    if (!text) return;
    const holder = tag === "text" ? element : element.appendChild(document.createElementNS(svgNames, "title"));
    holder.textContent = text;
  };
  const table = (section, about, columns, rows) => {
    const details = add(section, "details");
    add(details, "summary", "Figures");
    add(details, "p", about);
    const wide = add(details, "div"), body = add(wide, "table");
    wide.className = "wide";
    const head = add(add(body, "thead"), "tr");
    for (const column of columns) add(head, "th", column).scope = "col";
    const lines = add(body, "tbody");
    for (const row of rows) {
      const line = add(lines, "tr");
      for (const cell of row) add(line, "td", cell);
    }
  };
  const draw = ({ title, about, height, shapes, columns, rows }) => {
    const section = add(main, "section");
    add(section, "h2", title);
    const svg = section.appendChild(document.createElementNS(svgNames, "svg"));
    for (const [name, value] of Object.entries({ class: "chart", role: "img", width: "100%", height })) svg.setAttribute(name, value);
    svg.setAttribute("aria-label", about);
    for (const item of shapes) shape(svg, item);
    if (rows) table(section, about, columns, rows);
  };

  const resize = () => {
    const { height } = document.body.getBoundingClientRect();
    post({ method: "ui/notifications/size-changed", params: { width: innerWidth, height: Math.ceil(height) } });
  };
  const show = (result) => {
    const view = result?._meta?.["aisp/view"] ?? {};
    const error = result?.structuredContent?.error;
    message.textContent = view.message ?? (error ? `${error.message} ${error.hint ?? ""}` : view.drawings ? "" : "This answer has no chart.");
    main.replaceChildren();
    for (const drawing of view.drawings ?? []) draw(drawing);
    next = view.next ?? null;
    button.hidden = !(next && mayCall);
    resize();
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      while (next && !closed) show(await request("tools/call", next));
    } catch (error) {
      message.textContent = `The call failed: ${error?.message ?? error}`;
    }
    button.disabled = false;
  });

  const adapt = (context) => {
    if (context?.theme === "light" || context?.theme === "dark") root.style.colorScheme = context.theme;
    for (const [name, value] of Object.entries(context?.styles?.variables ?? {}))
      if (/^--[a-z0-9-]+$/.test(name) && typeof value === "string") root.style.setProperty(name, value);
  };
  const notifications = {
    "ui/notifications/tool-result": show,
    "ui/notifications/tool-cancelled": () => { message.textContent = "The call was cancelled."; },
    "ui/notifications/host-context-changed": adapt,
  };
  const answers = { ping: () => ({}), "ui/resource-teardown": () => { closed = true; return {}; } };
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.jsonrpc !== "2.0") return;
    const { id, method, params, result, error } = data;
    if (method === undefined) {
      const waiting = pending.get(id);
      pending.delete(id);
      if (waiting) error ? waiting.reject(error) : waiting.resolve(result);
    } else if (id === undefined) {
      if (Object.hasOwn(notifications, method)) notifications[method](params);
    } else if (Object.hasOwn(answers, method)) post({ id, result: answers[method]() });
    else post({ id, error: { code: -32601, message: "Method not found" } });
  });

  const capabilities = { availableDisplayModes: ["inline", "fullscreen"] };
  const me = { name: "aisp-chart", version: root.dataset.version };
  request("ui/initialize", { protocolVersion: "2026-01-26", appInfo: me, appCapabilities: capabilities }).then((host) => {
    mayCall = Boolean(host?.hostCapabilities?.serverTools);
    adapt(host?.hostContext);
    post({ method: "ui/notifications/initialized" });
    new ResizeObserver(resize).observe(document.body);
  });
})();
