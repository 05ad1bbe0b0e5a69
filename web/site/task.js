// The other side of `work`: messages to handlers, one after the other; errors go back to the page.
import * as loom from "./tensorloom/index.js";

export * from "./tensorloom/index.js";
export const say = (kind, more = {}) => postMessage({ kind, ...more });

/** Lets messages in between steps of a long computation. */
export const breathe = () => new Promise((done) => setTimeout(done, 0));

export function tasks(handlers) {
  const started = loom.init();
  let last = started;
  onmessage = ({ data }) => {
    const run = async () => {
      try {
        await started;
        if (data.device !== undefined && !handlers[data.kind].now) loom.defaultDevice(data.device);
        await handlers[data.kind](data);
      } catch (e) {
        say("error", { text: e?.message ?? String(e) });
      }
    };
    // A message that says so doesn't wait for what is running.
    if (handlers[data.kind].now) run();
    else last = last.then(run);
  };
  started.then(
    () => say("ready", { devices: loom.devices(), gpu: loom.gpuName(), software: loom.gpuIsSoftware(), why: loom.whyNoGpu() }),
    (e) => say("error", { text: `the program could not be started: ${e.message}` }),
  );
}

export const now = (f) => Object.assign(f, { now: true });
