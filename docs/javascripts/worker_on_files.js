// Browsers start no workers for pages that are opened as files, and search is one: here it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      this.inside = inside;
      this.ready = new Promise((resolve) => {
        inside.postMessage = (data) => {
          const told = new MessageEvent("message", { data });
          this.dispatchEvent(told);
          if (this.onmessage) this.onmessage(told);
        };
        const load = (source) => new Promise((loaded) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = script.onerror = loaded;
          inside.document.body.append(script);
        });
        inside.importScripts = (...sources) => Promise.all(sources.map(load));
        load(address).then(resolve);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
