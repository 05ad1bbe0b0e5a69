import * as loom from "./task.js";
import { best, cases } from "./cases.js";

const { breathe, say, tasks, tree } = loom;

tasks({
  async run() {
    for (const c of cases(loom)) {
      const t = await best(c.run, tree.dispose, loom.defaultDevice() === "webgpu" ? 3 : 10, loom.blockUntilReady);
      say("row", { name: c.name, time: t < 1e-3 ? `${(t * 1e6).toFixed(0)} µs` : `${(t * 1e3).toFixed(2)} ms`, rate: c.rate(t) });
      await breathe();
    }
    say("done");
  },
});
