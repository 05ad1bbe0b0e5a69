// node suite.mjs PROGRAM [GRAPHS] [SEED] [EVERY]: the suite for backends on kernels made of WebAssembly.
import { readFileSync } from "node:fs";
import { load } from "./host.mjs";

const [program, graphs = "200", seed = "1", every = "1"] = process.argv.slice(2);
let refused = 0;
const suite = await load(readFileSync(program), {
  refused: (e) => {
    if (refused++ < 3) console.log(`refused: ${e.message}`);
  },
});
const begun = performance.now();
const failures = suite.run(Number(seed), Number(graphs), Number(every));
console.log(`${failures} failures, ${refused} modules refused, ${((performance.now() - begun) / 1e3).toFixed(1)} s`);
process.exit(failures > 0 || refused > 0 ? 1 : 0);
