// The host of a WebAssembly program that makes kernels: instantiates their modules over the program's memory, and puts
// their functions into its table.

export async function load(bytes, more = {}) {
  let memory, table;
  const free = [];
  const loom = {
    instantiate(at, length) {
      try {
        const module = new WebAssembly.Module(new Uint8Array(memory.buffer, at, length).slice());
        const { exports } = new WebAssembly.Instance(module, { env: { memory, table } });
        const place = free.pop() ?? table.grow(1);
        table.set(place, exports.kernel);
        return place;
      } catch (e) {
        loom.refused?.(e);
        return 0;
      }
    },
    forget(place) {
      table.set(place, null);
      free.push(place);
    },
    print(at, length) {
      console.log(new TextDecoder().decode(new Uint8Array(memory.buffer, at, length)));
    },
    now: () => performance.now(),
    ...more,
  };
  const { instance } = await WebAssembly.instantiate(bytes, { loom });
  memory = instance.exports.memory;
  table = instance.exports.__indirect_function_table;
  return instance.exports;
}
